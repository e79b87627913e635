// sum + product, where only this addition reads the product, becomes a product that adds to the sum: the contributions
// to a shared weight's gradient, or to the gradients of earlier micro-steps, are added up where they lie.
#include "engine/passes/matcher.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {

class Accumulate {
 public:
  explicit Accumulate(const Graph& graph) : matcher_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : rewriter_.old().nodes())
      if (!(matcher_.is_sum(node) && (fuse(node, 1) || fuse(node, 0)))) rewriter_.copy(node);
    return remove_dead_code(rewriter_.finish());
  }

 private:
  // Operand `which` is computed by an op that can add to the other one.
  bool fuse(const Node& node, size_t which) {
    const Node* lone = rewriter_.lone_producer(node.in[which]);
    if (!lone || !lone->op->can_accumulate || !lone->op->can_accumulate(*lone) || lone->out.size() != 1) return false;
    const Node producer = *lone;  // adding a node moves the others
    std::vector<Tensor> in = rewriter_.operands(producer);
    in.push_back(rewriter_[node.in[1 - which]]);
    rewriter_.map(node.out[0],
                  rewriter_.add(producer, *producer.op, in, producer.op->with_accumulator(producer.attrs))[0]);
    return true;
  }

  const Matcher matcher_;
  Rewriter rewriter_;
};

}  // namespace

Graph fuse_accumulate(const Graph& graph) { return Accumulate(graph).run(); }

}  // namespace linnet
