/* Load each library named in the arguments as a program would, by name, and say which file the loader took.
 *
 * One line per name: "ok PATH", the file itself with all links resolved, or "fail REASON". Exits 1 if any failed.
 * RTLD_NOW: every symbol must be found, so a library whose own dependencies are missing fails too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        struct link_map *map = NULL;
        void *library = dlopen(argv[i], RTLD_NOW);

        if (library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) {
            char file[PATH_MAX];
            printf("ok %s\n", realpath(map->l_name, file) ? file : map->l_name);
        } else {
            printf("fail %s\n", dlerror());
            failed = 1;
        }
    }
    return failed;
}
