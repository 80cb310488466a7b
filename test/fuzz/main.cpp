// Runs a fuzz target on seeded random inputs: main [ITERATIONS [SEED [-v]]]. With -v each seed is printed
// before it runs, so that the last one printed is the one that crashed.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
std::vector<std::uint8_t> make_input(std::mt19937& random);

int main(int argc, char** argv) {
  const unsigned long iterations = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 20000;
  const unsigned long first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  const bool verbose = argc > 3 && std::string_view{argv[3]} == "-v";
  for (unsigned long i = 0; i < iterations; ++i) {
    const unsigned long seed = first + i;
    if (verbose) std::fprintf(stderr, "seed %lu\n", seed);
    std::mt19937 random{static_cast<std::mt19937::result_type>(seed)};
    const auto input = make_input(random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%lu inputs from seed %lu\n", iterations, first);
  return 0;
}
