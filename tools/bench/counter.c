/* Touches so many MiB of memory with bytes that do not compress, then counts in /count for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? (size_t)atol(argv[1]) : 1) << 20;
    char *memory = malloc(bytes);
    unsigned long word = 88172645463325252UL;
    if (!memory) return 1;
    for (size_t at = 0; at + sizeof word <= bytes; at += sizeof word) { /* xorshift */
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        *(unsigned long *)(memory + at) = word;
    }
    for (unsigned long count = 1;; count++) {
        FILE *file = fopen("/count.new", "w");
        if (!file || fprintf(file, "%lu\n", count) < 0 || fclose(file) || rename("/count.new", "/count"))
            return 1;
        memory[(count * 4096) % bytes]++;
        usleep(1000);
    }
}
