#include "compiled_headers.hpp"

#include <cstdio>

// Says whether the named header was compiled alone into this program.
int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: header_tests HEADER\n", stderr);
    return 2;
  }
  if (!compiled_headers::contain(argv[1])) {
    std::fprintf(stderr, "%s is not part of this program\n", argv[1]);
    return 1;
  }
  return 0;
}
