/* As spread.c, at a node whose server isn't leat. */
#define WITH_SERVER
#include "spread.c"
