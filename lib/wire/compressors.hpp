#pragma once

#include <braid/compression.hpp>

#include "core/compressor_set.hpp"

namespace braid::wire {

/// The compressor of a number: a built-in one or one of `added`. Null: there is none.
const compressor* find_compressor(const core::compressor_set& added, compression number) noexcept;

/// The built-in ones.
const compressor& snappy_compressor() noexcept;
const compressor& gzip_compressor() noexcept;
const compressor& zlib_compressor() noexcept;

}  // namespace braid::wire
