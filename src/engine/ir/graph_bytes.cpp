#include "engine/ir/graph_bytes.h"

#include <algorithm>

#include "engine/ir/op.h"

namespace linnet {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 56;  // of a tensor: sizes in bytes cannot overflow

void write_shape(const Shape& shape, ByteWriter& bytes) {
  bytes.number(static_cast<uint8_t>(shape.rank()));
  for (const int64_t size : shape.sizes()) bytes.number(size);
}

// Numbers that are sizes or strides.
Shape read_shape(ByteReader& bytes) {
  const auto rank = bytes.number<uint8_t>();
  if (rank > kMaxRank) bytes.fail("a tensor has " + std::to_string(rank) + " axes");
  Shape shape;
  int64_t elements = 1;
  for (int axis = 0; axis < rank; ++axis) {
    const auto size = bytes.number<int64_t>();
    if (size < 0 || size > kMostElements / std::max<int64_t>(elements, 1))
      bytes.fail("a tensor has an impossible size");
    elements *= std::max<int64_t>(size, 1);
    shape.push_back(size);
  }
  return shape;
}

void write_type(const TensorType& type, ByteWriter& bytes) {
  bytes.string(dtype_name(type.dtype));
  write_shape(type.shape, bytes);
}

TensorType read_type(ByteReader& bytes) {
  const std::string_view name = bytes.string();
  const auto names = enum_names(DType{});
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) bytes.fail("there is no element type \"" + std::string(name) + "\"");
  return {static_cast<DType>(found - names.begin()), read_shape(bytes)};
}

// What stands next in the order of value ids.
enum class Record : uint8_t { kInput, kNode, kEnd };

class GraphWriter {
 public:
  GraphWriter(const Graph& graph, ByteWriter& bytes) : graph_(graph), bytes_(bytes) {}

  void run() {
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const Value& value = graph_.value(id);
      if (value.producer == kNone)
        input(id);
      else if (value.output == 0)
        node(graph_.node(value.producer));
    }
    bytes_.number(static_cast<uint8_t>(Record::kEnd));
    views();
    bytes_.number(static_cast<uint32_t>(graph_.outputs().size()));
    for (const GraphOutput& output : graph_.outputs()) bytes_.string(output.name), bytes_.number(output.value);
    bytes_.number(static_cast<uint32_t>(graph_.updates().size()));
    for (const StateUpdate& update : graph_.updates()) bytes_.number(update.state), bytes_.number(update.value);
  }

 private:
  void input(ValueId id) {
    const auto& inputs = graph_.inputs();
    const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const GraphInput& i) { return i.value == id; });
    bytes_.number(static_cast<uint8_t>(Record::kInput));
    bytes_.string(found->name);
    write_type(graph_.value(id).type, bytes_);
  }

  void node(const Node& node) {
    bytes_.number(static_cast<uint8_t>(Record::kNode));
    bytes_.string(node.op->name);
    bytes_.string(node.attrs.bytes());
    bytes_.string(node.where.file);
    bytes_.number(node.where.line);
    bytes_.string(node.where.function);
    bytes_.string(graph_.scope_path(node.scope));
    bytes_.number(static_cast<uint32_t>(node.in.size()));
    for (const ValueId in : node.in) bytes_.number(in);
    bytes_.number(static_cast<uint32_t>(node.out.size()));
    for (const ValueId out : node.out) write_type(graph_.value(out).type, bytes_);
  }

  void views() {
    uint32_t count = 0;
    for (ValueId id = 0; id < graph_.value_count(); ++id) count += graph_.value(id).view.has_value();
    bytes_.number(count);
    for (ValueId id = 0; id < graph_.value_count(); ++id)
      if (const auto& view = graph_.value(id).view) {
        bytes_.number(id), bytes_.number(view->base), bytes_.number(view->offset);
        write_shape(view->strides, bytes_);
      }
  }

  const Graph& graph_;
  ByteWriter& bytes_;
};

class GraphReader {
 public:
  GraphReader(ByteReader& bytes, FindOp find_op) : bytes_(bytes), find_op_(find_op) {}

  Graph run() {
    for (;;) {
      const auto record = static_cast<Record>(bytes_.number<uint8_t>());
      if (record == Record::kEnd) break;
      if (record == Record::kInput)
        input();
      else if (record == Record::kNode)
        node();
      else
        bytes_.fail("a record of the graph has an unknown kind");
    }
    views();
    for (size_t left = bytes_.count(8); left > 0; --left) {
      const std::string name(bytes_.string());
      graph_.output(name, {&graph_, value()});
    }
    for (size_t left = bytes_.count(8); left > 0; --left) update();
    check();
    return std::move(graph_);
  }

 private:
  ValueId value() {
    const auto id = bytes_.number<ValueId>();
    if (id < 0 || id >= graph_.value_count()) bytes_.fail("it refers to a value that does not exist");
    return id;
  }

  void input() {
    const std::string name(bytes_.string());
    const TensorType type = read_type(bytes_);
    if (graph_.find_input(name)) bytes_.fail("it has two inputs \"" + name + "\"");
    graph_.input(name, type);
  }

  void node() {
    const std::string name(bytes_.string());
    const OpDef* op = find_op_(name);
    if (!op) bytes_.fail("there is no op \"" + name + "\"");
    const std::string_view attrs = bytes_.string();
    if (!attrs.empty() && !op->read_attrs) bytes_.fail("op " + name + " has attributes");
    const std::string_view file = bytes_.string();
    const auto line = bytes_.number<uint32_t>();
    const SourceLine where = intern_source_line(file, line, bytes_.string());
    graph_.set_scope(0);
    graph_.enter_scope(std::string(bytes_.string()));
    std::vector<Tensor> in(bytes_.count(4));
    for (Tensor& tensor : in) tensor = {&graph_, value()};
    std::vector<TensorType> types(bytes_.count(5));
    for (TensorType& type : types) type = read_type(bytes_);
    if (types.empty()) bytes_.fail("a node has no results");
    graph_.add_stored(*op, in, op->read_attrs ? op->read_attrs(attrs, bytes_.what()) : Attrs{}, where, types);
  }

  void views() {
    for (size_t left = bytes_.count(17); left > 0; --left) {
      const ValueId id = value(), base = value();
      const auto offset = bytes_.number<int64_t>();
      const Shape strides = read_shape(bytes_);
      if (offset < 0 || offset > kMostElements || strides.rank() != graph_.value(id).type.shape.rank())
        bytes_.fail("a view does not fit its value");
      graph_.set_view(id, {base, offset, strides});
    }
    for (ValueId id = 0; id < graph_.value_count(); ++id) check_chain(id);
  }

  // Views end in a value with memory of its own.
  void check_chain(ValueId id) {
    ValueId steps = 0;
    for (const Value* v = &graph_.value(id); v->view; v = &graph_.value(v->view->base))
      if (++steps > graph_.value_count()) bytes_.fail("a view is part of itself");
  }

  void update() {
    const ValueId state = value(), next = value();
    if (graph_.value(state).type != graph_.value(next).type) bytes_.fail("a state is updated with another type");
    graph_.update({&graph_, state}, {&graph_, next});
  }

  // What holds for every graph that was traced must hold for this one.
  void check() {
    try {
      verify(graph_);
    } catch (const std::runtime_error& problem) {  // Error, or an op's ShapeProblem
      bytes_.fail(problem.what());
    }
  }

  ByteReader& bytes_;
  FindOp find_op_;
  Graph graph_;
};

}  // namespace

void write_graph(const Graph& graph, ByteWriter& bytes) { GraphWriter(graph, bytes).run(); }

Graph read_graph(ByteReader& bytes, FindOp find_op) { return GraphReader(bytes, find_op).run(); }

}  // namespace linnet
