#include <algorithm>
#include <filesystem>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "base/functions.h"
#include "base/protobuf.h"
#include "base/text.h"
#include "onnx/file/model.h"

namespace linnet {
namespace {
struct ElementRow {
  OnnxElement element;
  const char* name;
  std::optional<FileDType> dtype;
};

constexpr ElementRow kElements[] = {
    {OnnxElement::kFloat, "float", FileDType::kF32},
    {OnnxElement::kUint8, "uint8", FileDType::kU8},
    {OnnxElement::kInt8, "int8", FileDType::kI8},
    {OnnxElement::kUint16, "uint16", FileDType::kU16},
    {OnnxElement::kInt16, "int16", FileDType::kI16},
    {OnnxElement::kInt32, "int32", FileDType::kI32},
    {OnnxElement::kInt64, "int64", FileDType::kI64},
    {OnnxElement::kString, "string", std::nullopt},
    {OnnxElement::kBool, "bool", FileDType::kBool},
    {OnnxElement::kFloat16, "float16", FileDType::kF16},
    {OnnxElement::kDouble, "double", FileDType::kF64},
    {OnnxElement::kUint32, "uint32", FileDType::kU32},
    {OnnxElement::kUint64, "uint64", FileDType::kU64},
    {OnnxElement::kBFloat16, "bfloat16", FileDType::kBF16},
};

namespace fs = std::filesystem;

constexpr int kMostDepth = 16;                       // graphs within graphs
constexpr int64_t kMostElements = INT64_C(1) << 40;  // of a tensor
constexpr size_t kMostRank = 64;

std::string shown(const std::string& text) {
  std::string line = text.substr(0, 100);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return "\"" + line + (text.size() > 100 ? "...\"" : "\"");
}

template <class T> void append(std::vector<std::byte>& to, T value, size_t size = sizeof(T)) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + size);
}

class Reader {
 public:
  // `folder` has the external data; empty: none allowed.
  Reader(std::string name, std::string folder)
      : name_(std::move(name)), folder_(std::move(folder)),
        fail_([this](const std::string& problem) { fail(problem); }) {}

  OnnxModel model(std::string_view bytes) {
    OnnxModel model;
    model.ir_version = 0;
    bool has_graph = false;
    std::vector<OnnxFunction> functions;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() == 1) model.ir_version = fields.integer();
      if (fields.number() == 2) model.producer = fields.data();
      if (fields.number() == 3) model.producer_version = fields.data();
      if (fields.number() == 7) {
        if (has_graph) fail("it has two graphs");
        model.graph = graph(fields.data(), 0);
        has_graph = true;
      }
      if (fields.number() == 8) opset(fields.data(), model.opsets);
      if (fields.number() == 25) functions.push_back(function(fields.data()));
    }
    if (!has_graph) fail("it has no graph");
    if (!model.opsets.contains("")) model.opsets[""] = 1;
    expand_functions(model.graph, functions, fail_);
    check_graph(model.graph, {});
    for (const auto& [location, file] : files_) model.files.push_back(file);
    return model;
  }

  // Elements outside of raw_data are in one of several lists, by type.
  OnnxTensor tensor(std::string_view bytes) {
    OnnxTensor tensor{.name = {}, .element = OnnxElement::kUndefined};
    auto list = std::make_shared<std::vector<std::byte>>();
    std::map<std::string, std::string> external;
    bool is_external = false, has_list = false, has_raw = false;
    std::string_view raw;
    const auto add_integer = [&](int64_t value) {
      has_list = true;
      if (const auto dtype = element_dtype(tensor.element)) append(*list, value, file_dtype_size(*dtype));
    };
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      const uint64_t number = fields.number();
      if (number == 1) {
        fields.each_integer([&](int64_t dim) {
          tensor.dims.push_back(dim);
          if (tensor.dims.size() > kMostRank) fail("a tensor has too many axes");
        });
      }
      if (number == 2) tensor.element = static_cast<OnnxElement>(fields.integer());
      if (number == 4) has_list = true, fields.each_real([&](float value) { append(*list, value); });
      if (number == 5 || number == 7 || number == 11) fields.each_integer(add_integer);
      if (number == 6) tensor.strings.emplace_back(fields.data());
      if (number == 8) tensor.name = fields.data();
      if (number == 9) raw = fields.data(), has_raw = true;
      if (number == 10) has_list = true, fields.each_double([&](double value) { append(*list, value); });
      if (number == 13) {
        std::string key, text;
        for (ProtoReader entry(fields.data(), fail_); entry.next();) {
          if (entry.number() == 1) key = entry.data();
          if (entry.number() == 2) text = entry.data();
        }
        external[key] = text;
      }
      if (number == 14) is_external = fields.integer() == 1;
    }
    if (is_external) {
      take_external(tensor, external);
    } else if (has_list && !has_raw) {
      tensor.data = *list;
      tensor.owner = list;
    } else {
      tensor.data = std::as_bytes(std::span(raw));
    }
    check_data(tensor);
    return tensor;
  }

 private:
  template <class... Parts> [[noreturn]] void fail(const Parts&... problem) const {
    fail_user("'", name_, "' is no ONNX model or is damaged: ", problem...);
  }

  void opset(std::string_view bytes, std::map<std::string, int64_t>& opsets) {
    std::string domain;
    int64_t version = 0;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() == 1) domain = fields.data();
      if (fields.number() == 2) version = fields.integer();
    }
    opsets[domain == "ai.onnx" ? "" : domain] = version;
  }

  OnnxGraph graph(std::string_view bytes, int depth) {
    if (depth > kMostDepth) fail("graphs within graphs are more than ", kMostDepth, " deep");
    OnnxGraph graph;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() == 1) graph.nodes.push_back(node(fields.data(), depth));
      if (fields.number() == 2) graph.name = fields.data();
      if (fields.number() == 5) {
        graph.initializers.push_back(tensor(fields.data()));
        if (graph.initializers.back().name.empty()) fail("an initializer has no name");
      }
      if (fields.number() == 11) graph.inputs.push_back(value(fields.data()));
      if (fields.number() == 12) graph.outputs.push_back(value(fields.data()));
      if (fields.number() == 15) fail("it has a sparse initializer, which Linnet does not read");
    }
    return graph;
  }

  OnnxNode node(std::string_view bytes, int depth) {
    OnnxNode node;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() == 1) node.in.emplace_back(fields.data());
      if (fields.number() == 2) node.out.emplace_back(fields.data());
      if (fields.number() == 3) node.name = fields.data();
      if (fields.number() == 4) node.op = fields.data();
      if (fields.number() == 5) node.attributes.push_back(attribute(fields.data(), depth));
      if (fields.number() == 7) node.domain = fields.data() == "ai.onnx" ? "" : fields.data();
    }
    if (node.op.empty() || node.out.empty()) fail("node ", shown(node.name), " has no operator or no result");
    return node;
  }

  OnnxAttribute attribute(std::string_view bytes, int depth) {
    OnnxAttribute attribute;
    std::set<uint64_t> seen;
    int64_t stated = 0;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      seen.insert(fields.number());
      if (fields.number() == 1) attribute.name = fields.data();
      if (fields.number() == 2) attribute.f = fields.real();
      if (fields.number() == 3) attribute.i = fields.integer();
      if (fields.number() == 4) attribute.s = fields.data();
      if (fields.number() == 5) attribute.tensor = std::make_shared<OnnxTensor>(tensor(fields.data()));
      if (fields.number() == 6) attribute.graph = std::make_shared<OnnxGraph>(graph(fields.data(), depth + 1));
      if (fields.number() == 7) fields.each_real([&](float value) { attribute.floats.push_back(value); });
      if (fields.number() == 8) fields.each_integer([&](int64_t value) { attribute.ints.push_back(value); });
      if (fields.number() == 9) attribute.strings.emplace_back(fields.data());
      if (fields.number() == 20) stated = fields.integer();
      if (fields.number() == 21) attribute.reference = fields.data();
      // Other types are unsupported, found when the value is needed.
    }
    // Old files do not state the type.
    for (uint64_t field = 2; stated == 0 && field <= 9; ++field)
      if (seen.contains(field)) stated = static_cast<int64_t>(field) - 1;
    if (stated < 0 || stated > OnnxAttribute::kStrings) stated = OnnxAttribute::kUndefined;
    attribute.type = static_cast<OnnxAttribute::Type>(stated);
    if (attribute.reference.empty() && ((attribute.type == OnnxAttribute::kTensor && !attribute.tensor) ||
                                           (attribute.type == OnnxAttribute::kGraph && !attribute.graph)))
      fail("attribute ", shown(attribute.name), " has no value");
    return attribute;
  }

  OnnxFunction function(std::string_view bytes) {
    OnnxFunction function;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() == 1) function.name = fields.data();
      if (fields.number() == 4) function.in.emplace_back(fields.data());
      if (fields.number() == 5) function.out.emplace_back(fields.data());
      if (fields.number() == 7) function.nodes.push_back(node(fields.data(), 0));
      if (fields.number() == 10) function.domain = fields.data() == "ai.onnx" ? "" : fields.data();
      if (fields.number() == 11) function.defaults.push_back(attribute(fields.data(), 0));
    }
    return function;
  }

  OnnxValueInfo value(std::string_view bytes) {
    OnnxValueInfo value;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() == 1) value.name = fields.data();
      if (fields.number() == 2) type(fields.data(), value);
    }
    return value;
  }

  void type(std::string_view bytes, OnnxValueInfo& value) {
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() != 1) continue;  // not a tensor
      for (ProtoReader tensor(fields.data(), fail_); tensor.next();) {
        if (tensor.number() == 1) value.element = static_cast<OnnxElement>(tensor.integer());
        if (tensor.number() == 2) shape(tensor.data(), value);
      }
    }
  }

  void shape(std::string_view bytes, OnnxValueInfo& value) {
    value.has_shape = true;
    for (ProtoReader fields(bytes, fail_); fields.next();) {
      if (fields.number() != 1) continue;
      OnnxDim dim;
      for (ProtoReader one(fields.data(), fail_); one.next();) {
        if (one.number() == 1) dim.size = std::max<int64_t>(one.integer(), -1);
        if (one.number() == 2) dim.symbol = one.data();
      }
      value.dims.push_back(dim);
      if (value.dims.size() > kMostRank) fail("value ", shown(value.name), " has too many axes");
    }
  }

  void check_data(const OnnxTensor& tensor) const {
    int64_t count = 1;
    for (const int64_t dim : tensor.dims) {
      if (dim < 0) fail("tensor ", shown(tensor.name), " has a negative size");
      if (dim > 0 && count > kMostElements / dim) fail("tensor ", shown(tensor.name), " is larger than any memory");
      count *= dim;
    }
    if (tensor.element == OnnxElement::kString) {
      if (static_cast<int64_t>(tensor.strings.size()) != count) fail("tensor ", shown(tensor.name), " misses texts");
      return;
    }
    if (!element_dtype(tensor.element)) return;  // refused where it is used
    const uint64_t expected = static_cast<uint64_t>(count) * file_dtype_size(*element_dtype(tensor.element));
    if (tensor.data.size() != expected)
      fail("tensor ", shown(tensor.name), " has ", tensor.data.size(), " bytes of data, expected ", expected);
  }

  const MappedFile& external_file(const std::string& location) {
    const fs::path path(location);
    if (folder_.empty()) fail("it keeps weights in another file, ", shown(location));
    const bool inside = !location.empty() && path.is_relative() && location.find('\0') == std::string::npos &&
                        std::ranges::none_of(path, [](const fs::path& part) { return part == ".."; });
    if (!inside) fail("its weights are in ", shown(location), ", which is not a file of the model's folder");
    std::shared_ptr<const MappedFile>& file = files_[location];
    if (file) return *file;
    const fs::path full = fs::path(folder_) / path;
    std::error_code error;
    if (!fs::is_regular_file(full, error)) fail("the file of its weights, ", shown(full.string()), ", is missing");
    const fs::path real = fs::canonical(full, error), root = fs::canonical(folder_, error);
    const auto [end, ignored] = std::ranges::mismatch(root, real);
    if (error || end != root.end())
      fail("its weights are in ", shown(location), ", which is not a file of the model's folder");
    file = std::make_shared<const MappedFile>(full.string());
    return *file;
  }

  void take_external(OnnxTensor& tensor, const std::map<std::string, std::string>& entries) {
    const auto number = [&](const char* key, uint64_t otherwise) {
      const std::string* text = find_value(entries, key);
      if (!text) return otherwise;
      if (!is_digits(*text) || text->size() > 18)
        fail("tensor ", shown(tensor.name), " lies at no number of bytes: ", shown(*text));
      return static_cast<uint64_t>(std::stoull(*text));
    };
    const std::string* location = find_value(entries, "location");
    if (!location) fail("tensor ", shown(tensor.name), " is in another file, but it does not say which");
    const MappedFile& file = external_file(*location);
    const uint64_t offset = number("offset", 0);
    if (offset > file.size()) fail("tensor ", shown(tensor.name), " lies behind the end of ", shown(*location));
    const uint64_t length = number("length", file.size() - offset);
    if (length > file.size() - offset)
      fail("tensor ", shown(tensor.name), " goes beyond the end of ", shown(*location));
    tensor.data = {file.data() + offset, static_cast<size_t>(length)};
    tensor.owner = files_.at(*location);
  }

  // Every name is written once, and before it is read.
  void check_graph(const OnnxGraph& graph, std::set<std::string> known) const {
    const auto define = [&](const std::string& name, const std::string& by) {
      if (!name.empty() && !known.insert(name).second) fail("value ", shown(name), " is computed twice, by ", by);
    };
    std::set<std::string> inputs;
    for (const OnnxValueInfo& input : graph.inputs) {
      if (input.name.empty()) fail("an input has no name");
      define(input.name, "an input");
      inputs.insert(input.name);
    }
    std::set<std::string> initializers;
    for (const OnnxTensor& tensor : graph.initializers) {
      if (!initializers.insert(tensor.name).second) fail("initializer ", shown(tensor.name), " is there twice");
      if (!inputs.contains(tensor.name)) define(tensor.name, "an initializer");  // old files list them as inputs too
    }
    for (const OnnxNode& node : graph.nodes) {
      const std::string who = node.op + (node.name.empty() ? "" : " " + shown(node.name));
      for (const std::string& name : node.in)
        if (!name.empty() && !known.contains(name))
          fail(who, " reads ", shown(name), ", which is not computed before it (nodes must be sorted)");
      for (const OnnxAttribute& attribute : node.attributes) {
        if (!attribute.reference.empty())
          fail(who, " refers to ", shown(attribute.reference), " outside of a function");
        if (attribute.graph) check_graph(*attribute.graph, known);
      }
      for (const std::string& name : node.out) define(name, who);
    }
    for (const OnnxValueInfo& output : graph.outputs)
      if (!known.contains(output.name)) fail("output ", shown(output.name), " is not computed");
  }

  std::string name_, folder_;
  ProtoReader::Fail fail_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
}  // namespace

std::string element_name(OnnxElement element) {
  const ElementRow* row = find_item(kElements, element, &ElementRow::element);
  return row ? row->name : "type " + std::to_string(static_cast<int32_t>(element));
}

std::optional<FileDType> element_dtype(OnnxElement element) {
  const ElementRow* row = find_item(kElements, element, &ElementRow::element);
  return row ? row->dtype : std::nullopt;
}

OnnxElement onnx_element(FileDType dtype) {
  const ElementRow* row = find_item(kElements, dtype, &ElementRow::dtype);
  return row ? row->element : OnnxElement::kUndefined;
}

int64_t OnnxTensor::elements() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

OnnxAttribute int_attribute(std::string name, int64_t value) {
  return {.name = std::move(name), .type = OnnxAttribute::kInt, .i = value};
}
OnnxAttribute float_attribute(std::string name, float value) {
  return {.name = std::move(name), .type = OnnxAttribute::kFloat, .f = value};
}
OnnxAttribute ints_attribute(std::string name, std::vector<int64_t> values) {
  return {.name = std::move(name), .type = OnnxAttribute::kInts, .ints = std::move(values)};
}
OnnxAttribute tensor_attribute(std::string name, OnnxTensor tensor) {
  return {.name = std::move(name),
      .type = OnnxAttribute::kTensor,
      .tensor = std::make_shared<OnnxTensor>(std::move(tensor))};
}

const OnnxAttribute* OnnxNode::find(const std::string& attribute) const {
  return find_item(attributes, attribute, &OnnxAttribute::name);
}

void OnnxModel::drop_pages(const OnnxTensor& read) const {
  if (read.data.size() >= 1 << 20)
    for (const auto& file : files) file->drop_pages();
}

OnnxModel read_onnx(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::string folder = fs::path(path).parent_path().string();
  OnnxModel model = Reader(path, folder.empty() ? "." : folder).model(text_of({file->data(), file->size()}));
  model.files.push_back(file);
  return model;
}

OnnxModel read_onnx(std::span<const std::byte> bytes, const std::string& name) {
  return Reader(name, "").model(text_of(bytes));
}

OnnxTensor read_onnx_tensor(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  OnnxTensor tensor = Reader(path, "").tensor(text_of({file->data(), file->size()}));
  if (!tensor.owner) tensor.owner = file;
  return tensor;
}
}  // namespace linnet
