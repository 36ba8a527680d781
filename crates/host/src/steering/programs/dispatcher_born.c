/* As dispatcher.c, and SYNs are answered without a socket: for kernels that have what it takes (Linux 6.9). */
#define WITH_BIRTHS
#include "dispatcher.c"
