// Writes ONNX models. Sizes precede contents, so messages around initializers are made before their data is written.
#include <algorithm>
#include "base/files.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "base/protobuf.h"
#include "onnx/file/model.h"

namespace linnet {
namespace {
constexpr int64_t kMadeAtOnce = 1 << 20;  // elements made at once
constexpr uint64_t kAlignment = 64;       // of tensors in a file of their own
constexpr size_t kLeastOutside = 1024;    // bytes; smaller tensors stay in the model
constexpr const char* kDataEnding = "_data";

// A TensorProto without its data.
ProtoWriter tensor_header(const OnnxTensor& tensor) {
  ProtoWriter out;
  for (const int64_t dim : tensor.dims) out.integer(1, dim);
  out.integer(2, static_cast<int64_t>(tensor.element));
  if (!tensor.name.empty()) out.text(8, tensor.name);
  return out;
}

void each_piece(const OnnxTensor& tensor, const std::function<void(const void*, size_t)>& write) {
  if (!tensor.fill) return write(tensor.data.data(), tensor.data.size());
  const size_t size = file_dtype_size(element_dtype(tensor.element).value());
  std::vector<std::byte> piece;
  for (int64_t first = 0, total = tensor.elements(); first < total; first += kMadeAtOnce) {
    const int64_t count = std::min(kMadeAtOnce, total - first);
    piece.resize(static_cast<size_t>(count) * size);
    tensor.fill(first, count, piece.data());
    write(piece.data(), piece.size());
  }
}

ProtoWriter whole_tensor(const OnnxTensor& tensor) {  // for attributes
  ProtoWriter out = tensor_header(tensor);
  for (const std::string& text : tensor.strings) out.text(6, text);
  if (!tensor.strings.empty()) return out;
  std::string data;
  each_piece(tensor, [&](const void* bytes, size_t size) { data.append(static_cast<const char*>(bytes), size); });
  out.text(9, data);
  return out;
}

ProtoWriter graph_message(const OnnxGraph& graph);

ProtoWriter attribute_message(const OnnxAttribute& attribute) {
  ProtoWriter out;
  out.text(1, attribute.name);
  if (attribute.type == OnnxAttribute::kFloat) out.real(2, attribute.f);
  if (attribute.type == OnnxAttribute::kInt) out.integer(3, attribute.i);
  if (attribute.type == OnnxAttribute::kString) out.text(4, attribute.s);
  if (attribute.type == OnnxAttribute::kTensor) out.message(5, whole_tensor(*attribute.tensor));
  if (attribute.type == OnnxAttribute::kGraph) out.message(6, graph_message(*attribute.graph));
  for (const float value : attribute.floats) out.real(7, value);
  for (const int64_t value : attribute.ints) out.integer(8, value);
  for (const std::string& value : attribute.strings) out.text(9, value);
  out.integer(20, static_cast<int64_t>(attribute.type));
  return out;
}

ProtoWriter node_message(const OnnxNode& node) {
  ProtoWriter out;
  for (const std::string& name : node.in) out.text(1, name);
  for (const std::string& name : node.out) out.text(2, name);
  out.text(3, node.name);
  out.text(4, node.op);
  for (const OnnxAttribute& attribute : node.attributes) out.message(5, attribute_message(attribute));
  if (!node.domain.empty()) out.text(7, node.domain);
  return out;
}

ProtoWriter value_message(const OnnxValueInfo& value) {
  ProtoWriter shape;
  for (const OnnxDim& dim : value.dims) {
    ProtoWriter one;
    if (dim.size >= 0) one.integer(1, dim.size);
    else if (!dim.symbol.empty()) one.text(2, dim.symbol);
    shape.message(1, one);
  }
  ProtoWriter tensor, type, out;
  tensor.integer(1, static_cast<int64_t>(value.element));
  if (value.has_shape) tensor.message(2, shape);
  type.message(1, tensor);
  out.text(1, value.name);
  out.message(2, type);
  return out;
}

// The bytes before and after the initializers.
struct GraphParts {
  ProtoWriter before, after;
};
GraphParts graph_parts(const OnnxGraph& graph) {
  GraphParts parts;
  for (const OnnxNode& node : graph.nodes) parts.before.message(1, node_message(node));
  parts.before.text(2, graph.name);
  for (const OnnxValueInfo& value : graph.inputs) parts.after.message(11, value_message(value));
  for (const OnnxValueInfo& value : graph.outputs) parts.after.message(12, value_message(value));
  return parts;
}

ProtoWriter graph_message(const OnnxGraph& graph) {
  GraphParts parts = graph_parts(graph);
  for (const OnnxTensor& tensor : graph.initializers) parts.before.message(5, whole_tensor(tensor));
  parts.before.append(parts.after);
  return parts.before;
}

// An initializer's field of the graph up to the data, which follows unless it is `outside`.
struct InitializerParts {
  const OnnxTensor* tensor;
  ProtoWriter header;
  bool outside = false;
  uint64_t size() const { return header.bytes().size() + (outside ? 0 : tensor->bytes()); }
};

void add_external(ProtoWriter& header, const std::string& key, const std::string& value) {
  ProtoWriter entry;
  entry.text(1, key);
  entry.text(2, value);
  header.message(13, entry);
}

std::vector<InitializerParts> initializer_parts(const OnnxGraph& graph, bool outside, const std::string& data_file) {
  std::vector<InitializerParts> parts;
  uint64_t offset = 0;
  for (const OnnxTensor& tensor : graph.initializers) {
    const bool elsewhere = !tensor.external_file.empty();
    InitializerParts part{&tensor, tensor_header(tensor), elsewhere || (outside && tensor.bytes() >= kLeastOutside)};
    if (part.outside) {
      add_external(part.header, "location", elsewhere ? tensor.external_file : data_file);
      add_external(part.header, "offset", std::to_string(elsewhere ? tensor.external_offset : offset));
      add_external(part.header, "length", std::to_string(tensor.bytes()));
      part.header.integer(14, 1);  // data_location: EXTERNAL
      if (!elsewhere) offset += round_up(tensor.bytes(), kAlignment);
    } else {
      part.header.begin(9, tensor.bytes());
    }
    ProtoWriter field;
    field.begin(5, part.size());
    field.append(part.header);
    part.header = std::move(field);
    parts.push_back(std::move(part));
  }
  return parts;
}

void write_data_file(AtomicFile& file, const OnnxModel& model, const std::vector<InitializerParts>& parts) {
  for (const InitializerParts& part : parts) {
    if (!part.outside || !part.tensor->external_file.empty()) continue;
    each_piece(*part.tensor, [&](const void* bytes, size_t size) { file.write(bytes, size); });
    file.write(std::string(round_up(part.tensor->bytes(), kAlignment) - part.tensor->bytes(), '\0'));
    model.drop_pages(*part.tensor);
  }
  file.finish();
}

ProtoWriter model_header(const OnnxModel& model) {
  ProtoWriter out;
  out.integer(1, model.ir_version);
  out.text(2, model.producer);
  out.text(3, model.producer_version);
  for (const auto& [domain, version] : model.opsets) {
    ProtoWriter opset;
    opset.text(1, domain);
    opset.integer(2, version);
    out.message(8, opset);
  }
  return out;
}
}  // namespace

void write_onnx(const OnnxModel& model, const std::string& path, uint64_t most_inside) {
  uint64_t data_bytes = 0;
  for (const OnnxTensor& tensor : model.graph.initializers)
    if (tensor.external_file.empty()) data_bytes += tensor.bytes();
  const bool outside = data_bytes > most_inside;
  const std::string name = path.substr(path.rfind('/') + 1) + kDataEnding;
  const std::vector<InitializerParts> initializers = initializer_parts(model.graph, outside, name);
  const GraphParts graph = graph_parts(model.graph);
  ProtoWriter header = model_header(model);
  header.begin(7, graph.before.bytes().size() + sum_of<uint64_t>(initializers, &InitializerParts::size) +
                      graph.after.bytes().size());
  std::unique_ptr<AtomicFile> data;
  if (outside) {
    data = std::make_unique<AtomicFile>(path + kDataEnding);
    write_data_file(*data, model, initializers);
  }
  AtomicFile file(path);
  file.write(header.bytes());
  file.write(graph.before.bytes());
  for (const InitializerParts& part : initializers) {
    file.write(part.header.bytes());
    if (!part.outside) each_piece(*part.tensor, [&](const void* bytes, size_t size) { file.write(bytes, size); });
    model.drop_pages(*part.tensor);
  }
  file.write(graph.after.bytes());
  file.finish();
  if (data) data->commit();
  file.commit();
}
}  // namespace linnet
