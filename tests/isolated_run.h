// A graph run kernel by kernel on a backend, each value alone between bytes that are NaN as floats and -1 as integers,
// in memory that is so before. What reads beyond an operand or before it was written gets NaN; what writes beyond a
// result changes them.
#pragma once
#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include <map>
#include <vector>
#include "engine/exec/interpreter.h"
#include "engine/ir/op.h"

namespace linnet::testing {
class IsolatedRun {
 public:
  IsolatedRun(const Graph& graph, const Backend& backend) : graph_(graph), backend_(backend), pool_(1) {
    for (ValueId id = 0; id < graph.value_count(); ++id)
      if (root_of(graph, id).value == id) locations_[id] = reserve(graph.value(id).type.bytes());
    for (NodeId id = 0; id < graph.node_count(); ++id) {
      const Node& node = graph.node(id);
      const std::vector<TensorType> in = types(node.in), out = types(node.out);
      const KernelQuery query{node, in, out, 1, backend.device};
      const Kernel& kernel = find_kernel(query, KernelSet::kFast, backend);
      calls_.push_back({id, &kernel, reserve(kernel.workspace ? kernel.workspace(query) : 0)});
    }
    memory_ = backend.device->allocate(size_, "a test");
  }
  ~IsolatedRun() { backend_.device->release(memory_); }
  IsolatedRun(const IsolatedRun&) = delete;
  IsolatedRun& operator=(const IsolatedRun&) = delete;

  NamedTensors run(const NamedTensors& inputs) {
    std::vector<std::byte> host(size_, std::byte{0xff});
    for (const GraphInput& input : graph_.inputs()) {
      const HostTensor& tensor = inputs.at(input.name);
      std::memcpy(host.data() + locations_.at(input.value).begin, tensor.data(), tensor.type().bytes());
    }
    backend_.device->upload(memory_, host.data(), size_);
    for (const Call& call : calls_) {
      const Node& node = graph_.node(call.node);
      const std::vector<TensorView> in = views(node.in), out = views(node.out);
      call.kernel->run({node, in, out, memory_ + call.workspace.begin, pool_, backend_.device});
      backend_.device->launched([&] { return graph_.where_text(call.node); });
    }
    backend_.device->wait();
    backend_.device->download(host.data(), memory_, size_);
    backend_.device->wait();
    check_gaps(host);
    NamedTensors outputs;
    for (const GraphOutput& output : graph_.outputs()) {
      HostTensor tensor(graph_.value(output.value).type);
      const TensorView from = view(output.value);
      std::memcpy(tensor.data(), host.data() + (from.as<std::byte>() - memory_), tensor.type().bytes());
      outputs[output.name] = std::move(tensor);
    }
    return outputs;
  }

 private:
  static constexpr size_t kAlignment = 256, kGap = 256;
  struct Location {
    size_t begin, bytes;
  };
  struct Call {
    NodeId node;
    const Kernel* kernel;
    Location workspace;
  };

  Location reserve(size_t bytes) {
    const Location location{size_ + kGap, bytes};
    size_ = (location.begin + bytes + kAlignment - 1) / kAlignment * kAlignment;
    gaps_.push_back({location.begin + bytes, size_ + kGap - location.begin - bytes});
    return location;
  }

  std::vector<TensorType> types(const std::vector<ValueId>& values) const {
    std::vector<TensorType> list;
    for (const ValueId id : values) list.push_back(graph_.value(id).type);
    return list;
  }

  TensorView view(ValueId id) const {
    const Root root = root_of(graph_, id);
    const TensorType& type = graph_.value(id).type;
    return {memory_ + locations_.at(root.value).begin + static_cast<size_t>(root.offset) * dtype_size(type.dtype), type,
        root.strides};
  }
  std::vector<TensorView> views(const std::vector<ValueId>& values) const {
    std::vector<TensorView> list;
    for (const ValueId id : values) list.push_back(view(id));
    return list;
  }

  void check_gaps(const std::vector<std::byte>& host) const {
    for (const Location& gap : gaps_) {
      const auto begin = host.begin() + static_cast<std::ptrdiff_t>(gap.begin);
      const auto end = host.begin() + static_cast<std::ptrdiff_t>(std::min(gap.begin + gap.bytes, size_));
      EXPECT_TRUE(std::all_of(begin, end, [](std::byte b) { return b == std::byte{0xff}; }))
          << "a kernel wrote beyond its result";
    }
  }

  const Graph& graph_;
  const Backend& backend_;
  ThreadPool pool_;
  std::map<ValueId, Location> locations_;
  std::vector<Call> calls_;
  std::vector<Location> gaps_;
  size_t size_ = 0;
  std::byte* memory_ = nullptr;
};
}  // namespace linnet::testing
