// Builds an ONNX graph. Equal nodes and constants are made once; what no output depends on is left out.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>
#include "onnx/file/model.h"

namespace linnet {
// A size that depends on symbols, the sizes a model is traced at: constant + the sum of factor * symbol [* symbol] over
// the terms. Traces have fixed shapes; several of them tell which numbers depend on which symbol.
struct SymbolicSize {
  struct Term {
    int64_t factor;
    std::vector<int> symbols;  // one or two, sorted
    bool operator==(const Term&) const = default;
  };
  int64_t constant = 0;
  std::vector<Term> terms = {};

  bool is_constant() const { return terms.empty(); }
  std::optional<int> as_symbol() const;  // if it is that symbol alone
  int64_t at(std::span<const int64_t> symbols) const;
  std::string text(std::span<const std::string> names) const;  // "past_length + length"
  bool operator==(const SymbolicSize&) const = default;
};

SymbolicSize operator+(SymbolicSize a, const SymbolicSize& b);

using SymbolicShape = std::vector<SymbolicSize>;

// One set of sizes per trace, one number per symbol. The sets must differ in all symbols.
using SizeSets = std::vector<std::vector<int64_t>>;

// The simplest form with values[i] at sets[i] for all i: a constant; constant + factor * symbol; constant + factor *
// symbol * symbol; constant + (once or twice) a symbol, plus or minus another; from four sets on, constant + factor *
// symbol + factor * its square. Empty: none fits.
std::optional<SymbolicSize> fit_size(std::span<const int64_t> values, const SizeSets& sets);

class OnnxBuilder {
 public:
  // `symbols` names sizes known at run time, such as "batch_size".
  OnnxBuilder(int64_t opset, std::vector<std::string> symbols) : opset_(opset), symbols_(std::move(symbols)) {}

  int64_t opset() const { return opset_; }
  const std::vector<std::string>& symbols() const { return symbols_; }

  std::string add(const std::string& op, std::vector<std::string> in, std::vector<OnnxAttribute> attributes = {}) {
    return add_many(op, std::move(in), 1, std::move(attributes))[0];
  }
  std::vector<std::string> add_many(
      const std::string& op, std::vector<std::string> in, size_t results, std::vector<OnnxAttribute> attributes = {});

  // Constants are nodes, as an importer may train initializers.
  std::string tensor(OnnxTensor tensor);
  std::string ints(const std::vector<int64_t>& values);  // int64 [n]
  std::string integer(int64_t value);                    // int64, a scalar
  std::string number(double value);                      // float, a scalar

  // int64 [1], an int64 scalar, and an int64 vector of all sizes.
  std::string size(const SymbolicSize& size);
  std::string size_scalar(const SymbolicSize& size);
  std::string shape(const SymbolicShape& shape);

  std::string reshape(const std::string& x, const SymbolicShape& from, const SymbolicShape& to);
  std::string transpose(const std::string& x, std::vector<int64_t> order);
  // Adds or removes axes of size 1, counted in the result or in x.
  std::string unsqueeze(const std::string& x, std::vector<int64_t> axes);
  // Reduces over axes, which stay with size 1.
  std::string reduce(const std::string& op, const std::string& x, std::vector<int64_t> axes);
  std::string cast(const std::string& x, OnnxElement element);

  // An initializer by its own name, made on writing. A known name is returned again.
  std::string initializer(OnnxTensor tensor);

  void input(std::string name, OnnxElement element, const SymbolicShape& shape);
  void output(std::string name, const std::string& value, OnnxElement element, const SymbolicShape& shape);

  OnnxGraph finish(std::string name);

 private:
  std::string fresh(const std::string& op);
  std::string symbol(int index);
  OnnxValueInfo info(const std::string& name, OnnxElement element, const SymbolicShape& shape) const;

  int64_t opset_;
  std::vector<std::string> symbols_;
  OnnxGraph graph_;
  std::map<std::string, std::vector<std::string>> made_;  // results by node
  std::map<std::string, std::string> constants_;          // names, by type, shape and data
  std::map<std::string, int64_t> counts_;                 // nodes of an operator
  std::set<std::string> initializers_;
  std::map<std::string, SymbolicShape> input_shapes_;
};
}  // namespace linnet
