/* What an image would have run by the host: a library that leaves a trace where it is loaded. */
#include <fcntl.h>

__attribute__((constructor)) static void leave_trace(void)
{
    creat("/pwned", 0644);
}
