#include "wire/compressors.hpp"

namespace braid::wire {

const compressor* find_compressor(const core::compressor_set& added, compression number) noexcept {
  switch (number) {
    case compression::snappy:
      return &snappy_compressor();
    case compression::gzip:
      return &gzip_compressor();
    case compression::zlib:
      return &zlib_compressor();
    default:
      return added.find(number);
  }
}

}  // namespace braid::wire
