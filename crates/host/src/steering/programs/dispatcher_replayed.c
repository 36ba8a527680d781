/* As dispatcher_born.c, for kernels before Linux 6.9: what is given to this host's own listener has its handshake replayed, and stays here. */
#define WITH_BIRTHS
#define WITH_REPLAYS
#include "dispatcher.c"
