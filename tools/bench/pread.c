/* The limit of the sampling benchmark: the same reads, in C, and nothing else.
 *
 * Paths come on standard input, one per line, ended by an empty line; then commands, one per line:
 * `kept PASSES PAUSE_MS` reads every file through kept descriptors, `open PASSES PAUSE_MS` opens and
 * closes it. Each answers with one line of CPU microseconds per pass. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double cpu_usec(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 + use.ru_utime.tv_usec +
           use.ru_stime.tv_usec;
}

int main(void)
{
    static char line[4096], data[65536];
    char **paths = NULL;
    int *fds = NULL, count = 0, passes, pause_ms;
    char mode[16];

    while (fgets(line, sizeof line, stdin) && line[0] != '\n') {
        line[strcspn(line, "\n")] = 0;
        paths = realloc(paths, (count + 1) * sizeof *paths);
        fds = realloc(fds, (count + 1) * sizeof *fds);
        paths[count] = strdup(line);
        fds[count] = open(line, O_RDONLY | O_CLOEXEC);
        if (fds[count] < 0) {
            perror(line);
            return 1;
        }
        count++;
    }
    while (scanf("%15s %d %d", mode, &passes, &pause_ms) == 3) {
        for (int pass = 0; pass < passes; pass++) {
            usleep(pause_ms * 1000);
            double begun = cpu_usec();
            for (int i = 0; i < count; i++) {
                int fd = mode[0] == 'o' ? open(paths[i], O_RDONLY | O_CLOEXEC) : fds[i];
                if (pread(fd, data, sizeof data, 0) < 0)
                    return 2;
                if (mode[0] == 'o')
                    close(fd);
            }
            printf("%.1f ", cpu_usec() - begun);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
