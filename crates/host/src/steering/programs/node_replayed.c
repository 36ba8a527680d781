/* As node_born.c, for kernels before Linux 6.9 (5.17 or later): connections begin at servers that aren't leat only, by handshakes that are replayed. */
#define WITH_BIRTHS
#define WITH_REPLAYS
#include "node.c"
