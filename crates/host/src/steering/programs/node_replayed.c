/* As node_born.c, for kernels that have no more than what other servers take (Linux 5.11): connections begin at these only. */
#define WITH_BIRTHS
#define WITH_REPLAYS
#include "node.c"
