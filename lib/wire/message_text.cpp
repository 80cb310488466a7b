#include "wire/message_text.hpp"

#include "core/base_stack.hpp"
#include "wire/nesting.hpp"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <memory>

namespace braid::wire {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::util::TypeResolver;

constexpr int deepest_nesting = 100;  // protobuf's own limit for its binary form
const std::string type_url_prefix = "type.googleapis.com";
const std::string too_deep = fmt::format("it nests more than {} messages", deepest_nesting);

std::string url_of(const Message& message) {
  return type_url_prefix + "/" + message.GetDescriptor()->full_name();
}

std::unique_ptr<TypeResolver> make_resolver(const DescriptorPool& pool) {
  return std::unique_ptr<TypeResolver>(
      google::protobuf::util::NewTypeResolverForDescriptorPool(type_url_prefix, &pool));
}

/// Tells protobuf's JSON code about the types of a message: those compiled into the program from one place
/// for all, those of another pool for one use.
class types_of {
 public:
  explicit types_of(const Message& message) {
    const DescriptorPool* const pool = message.GetDescriptor()->file()->pool();
    if (pool == DescriptorPool::generated_pool()) {
      static const std::unique_ptr<TypeResolver> generated = make_resolver(*DescriptorPool::generated_pool());
      resolver_ = generated.get();
    } else {
      own_ = make_resolver(*pool);
      resolver_ = own_.get();
    }
  }
  TypeResolver* get() const noexcept { return resolver_; }

 private:
  std::unique_ptr<TypeResolver> own_;
  TypeResolver* resolver_;
};

/// The first error of protobuf's text parser, which would go to the standard error.
class first_error final : public google::protobuf::io::ErrorCollector {
 public:
  explicit first_error(std::string& why) noexcept : why_{why} {}
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& text) override {
    if (why_.empty()) why_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, text);
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}

 private:
  std::string& why_;
};

bool parse_text_format(std::string_view text, Message& message, std::string& why) {
  if (!text_nests_within(text, deepest_nesting)) {
    why = too_deep;
    return false;
  }
  first_error errors{why};
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.AllowPartialMessage(true);
  parser.SetRecursionLimit(deepest_nesting);
  ArrayInputStream from{text.data(), static_cast<int>(text.size())};
  return parser.Parse(&from, &message);
}

// By way of the binary form and not by JsonStringToMessage(), which prints what is missing.
bool parse_json(std::string_view text, Message& message, std::string& why) {
  const types_of types{message};
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  ArrayInputStream from{text.data(), static_cast<int>(text.size())};
  std::string binary;
  google::protobuf::io::StringOutputStream to{&binary};
  const auto status =
      google::protobuf::util::JsonToBinaryStream(types.get(), url_of(message), &from, &to, options);
  if (!status.ok()) {
    why = status.ToString();
    return false;
  }
  if (message.ParsePartialFromString(binary)) return true;
  why = "a value does not fit its field";
  return false;
}

// By way of the binary form, as protobuf does it too, so that the nesting can be looked at first.
bool print_json(const Message& message, bool names_of_file, std::string& out, std::string& why) {
  std::string binary;
  if (!message.SerializePartialToString(&binary)) {
    why = "it is too large";
    return false;
  }
  if (!bytes_nest_within(binary, *message.GetDescriptor(), deepest_nesting)) {
    why = too_deep;
    return false;
  }
  const types_of types{message};
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = names_of_file;
  const auto status =
      google::protobuf::util::BinaryToJsonString(types.get(), url_of(message), binary, &out, options);
  if (!status.ok()) why = status.ToString();
  return status.ok();
}

}  // namespace

bool print_message(const Message& message, content_type as, std::string& out, std::string& why) {
  bool good = false;
  detail::run_on_base_stack([&] {
    good = as == content_type::proto_text ? TextFormat::PrintToString(message, &out)
                                          : print_json(message, as == content_type::json, out, why);
  });
  return good;
}

bool parse_message(std::string_view from, content_type as, Message& message, std::string& why) {
  bool good = false;
  detail::run_on_base_stack([&] {
    good = as == content_type::proto_text ? parse_text_format(from, message, why)
                                          : parse_json(from, message, why);
  });
  return good;
}

}  // namespace braid::wire
