#include "wire/compressors.hpp"

#include <snappy-sinksource.h>
#include <snappy.h>

#include <cstddef>

namespace braid::wire {
namespace {

/// Takes snappy's output, and its blocks without a copy. Snappy makes these one by one as data come out.
class output_sink final : public snappy::Sink {
 public:
  explicit output_sink(compression_output& out) noexcept : out_{out} {}

  void Append(const char* bytes, std::size_t n) override { good_ = out_.write({bytes, n}) && good_; }
  void AppendAndTakeOwnership(char* bytes, std::size_t n, void (*deleter)(void*, const char*, std::size_t),
                              void* argument) override {
    buffer taken = buffer::wrap(bytes, n, [=] { deleter(argument, bytes, n); });
    good_ = out_.append(std::move(taken)) && good_;
  }
  bool good() const noexcept { return good_; }

 private:
  compression_output& out_;
  bool good_ = true;
};

class snappy_codec final : public compressor {
 public:
  std::string_view name() const noexcept override { return "snappy"; }
  compression number() const noexcept override { return compression::snappy; }

  bool compress(std::string_view bytes, compression_output& out, std::string&) const override {
    snappy::ByteArraySource source{bytes.data(), bytes.size()};
    output_sink sink{out};
    snappy::Compress(&source, &sink);
    return sink.good();
  }

  bool decompress(std::string_view bytes, compression_output& out, std::string& why) const override {
    // The length that the data claim serves for nothing but to refuse them early.
    std::size_t claimed = 0;
    if (!snappy::GetUncompressedLength(bytes.data(), bytes.size(), &claimed)) {
      why = "the data do not start with their length";
      return false;
    }
    if (!out.expect(claimed)) return false;
    snappy::ByteArraySource source{bytes.data(), bytes.size()};
    output_sink sink{out};
    const bool intact = snappy::Uncompress(&source, &sink);
    if (!intact) why = "the data are damaged";
    return intact && sink.good();
  }
};

}  // namespace

const compressor& snappy_compressor() noexcept {
  static const snappy_codec one;
  return one;
}

}  // namespace braid::wire
