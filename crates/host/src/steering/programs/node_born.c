/* As node.c, and connections may begin here: for kernels that have what it takes (Linux 6.9). */
#define WITH_BIRTHS
#include "node.c"
