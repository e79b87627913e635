// Matrix products.
#include <map>
#include "onnx/operators.h"

namespace linnet {
namespace {
Shape join_shapes(const Shape& batch, int64_t rows, int64_t columns) {
  Shape shape = batch;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

Shape leading(const Shape& shape) { return Shape(shape.sizes().first(shape.rank() - 2)); }

// numpy's matmul for two or more axes.
Tensor product(OnnxCall& call, Tensor a, Tensor b) {
  if (b.shape().rank() == 2) return matmul(a, b);
  const Shape batch = compose::broadcast_shape(call, {leading(a.shape()), leading(b.shape())});
  a = compose::expand(a, join_shapes(batch, a.dim(-2), a.dim(-1)));
  b = compose::expand(b, join_shapes(batch, b.dim(-2), b.dim(-1)));
  return matmul(a, b);
}

void matmul_operator(OnnxCall& call) {
  if (const auto y = quantized_product(call, call.in(0), call.in(1), false)) return call.set(*y);
  Tensor a = call.tensor(0), b = call.tensor(1);
  const bool row = a.shape().rank() == 1, column = b.shape().rank() == 1;
  if (a.shape().rank() == 0 || b.shape().rank() == 0) call.fail("of a number");
  if (row) a = reshape(a, {1, a.dim(0)});
  if (column) b = reshape(b, {b.dim(0), 1});
  if (a.dim(-1) != b.dim(-2))
    call.fail("shapes ", call.shape(0).text(), " and ", call.shape(1).text(), " do not fit together");
  Tensor y = product(call, a, b);
  if (row || column) {
    Shape shape = leading(y.shape());
    if (!row) shape.push_back(y.dim(-2));
    if (!column) shape.push_back(y.dim(-1));
    y = reshape(y, shape);
  }
  call.set(y);
}

void gemm_operator(OnnxCall& call) {
  const double alpha = call.real("alpha", 1), beta = call.real("beta", 1);
  const bool trans_a = call.flag("transA"), trans_b = call.flag("transB");
  std::optional<Tensor> of_bytes;
  if (!trans_a) of_bytes = quantized_product(call, call.in(0), call.in(1), trans_b);
  Tensor y = of_bytes ? *of_bytes : matmul(call.tensor(0), call.tensor(1), trans_a, trans_b);
  if (alpha != 1) y = y * alpha;
  if (call.has(2) && beta != 0) {
    Tensor c = call.tensor(2);
    if (beta != 1) c = c * beta;
    y = compose::add(call, y, c);
  }
  call.set(y);
}

// A tensor with a letter per axis, for Einsum.
struct Lettered {
  Tensor tensor;
  std::string letters;
};

Lettered in_order(const Lettered& x, const std::string& letters) {
  std::vector<int> order;
  for (const char letter : letters) order.push_back(static_cast<int>(x.letters.find(letter)));
  return {compose::move_axes(x.tensor, order), letters};
}

Lettered sum_over(const Lettered& x, const std::string& kept) {
  std::string first, last;
  for (const char letter : x.letters) (kept.find(letter) == std::string::npos ? last : first) += letter;
  if (last.empty()) return x;
  const Lettered moved = in_order(x, first + last);
  Shape shape;
  for (size_t i = 0; i < first.size(); ++i) shape.push_back(moved.tensor.dim(static_cast<int>(i)));
  const int64_t rows = shape.elements();
  return {
      reshape(compose::sum_last(reshape(moved.tensor, {rows, moved.tensor.shape().elements() / rows})), shape), first};
}

// Sums the product of two over letters not kept, by a batch of matrix products.
Lettered contract(OnnxCall& call, Lettered a, Lettered b, const std::string& kept, std::map<char, int64_t>& sizes) {
  const auto within = [](const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; };
  a = sum_over(a, kept + b.letters);
  b = sum_over(b, kept + a.letters);
  std::string batch, inner, rows, columns;
  for (const char letter : a.letters)
    (within(b.letters, letter) ? (within(kept, letter) ? batch : inner) : rows) += letter;
  for (const char letter : b.letters)
    if (!within(a.letters, letter)) columns += letter;
  const auto count = [&](const std::string& letters) {
    int64_t product = 1;
    for (const char letter : letters) product *= sizes[letter];
    return product;
  };
  const Tensor left = reshape(in_order(a, batch + rows + inner).tensor, {count(batch), count(rows), count(inner)});
  const Tensor right =
      reshape(in_order(b, batch + inner + columns).tensor, {count(batch), count(inner), count(columns)});
  Shape shape;
  const std::string letters = batch + rows + columns;
  if (letters.size() > kMaxRank) call.fail("an intermediate result of too many axes");
  for (const char letter : letters) shape.push_back(sizes[letter]);
  return {reshape(matmul(left, right), shape), letters};
}

void einsum(OnnxCall& call) {
  std::string equation;
  for (const char c : call.text("equation", ""))
    if (c != ' ') equation += c;
  if (equation.find('.') != std::string::npos) call.fail("an equation with \"...\"");
  const size_t arrow = equation.find("->");
  std::vector<Lettered> terms;
  std::map<char, int64_t> sizes, uses;
  std::string letters;
  const std::string left = equation.substr(0, arrow) + ",";
  for (const char c : left) {
    if (c != ',') {
      letters += c;
      continue;
    }
    if (terms.size() >= call.operands()) call.fail("the equation has more terms than there are operands");
    const Tensor x = call.tensor(terms.size());
    if (static_cast<size_t>(x.shape().rank()) != letters.size()) call.fail("a term does not fit its operand");
    for (size_t i = 0; i < letters.size(); ++i) {
      if (letters.find(letters[i], i + 1) != std::string::npos) call.fail("a term with a letter twice");
      int64_t& size = sizes[letters[i]];
      if (size != 0 && size != x.dim(static_cast<int>(i))) call.fail("sizes of \"", letters.substr(i, 1), "\" differ");
      size = x.dim(static_cast<int>(i));
      ++uses[letters[i]];
    }
    terms.push_back({x, letters});
    letters.clear();
  }
  if (terms.size() != call.operands()) call.fail("the equation has fewer terms than there are operands");
  std::string result;
  if (arrow != std::string::npos) {
    result = equation.substr(arrow + 2);
  } else {
    for (const auto& [letter, count] : uses)
      if (count == 1) result += letter;
  }
  for (const char letter : result)
    if (!sizes.contains(letter)) call.fail("the result has a letter that no term has");
  while (terms.size() > 1) {
    std::string kept = result;
    for (size_t i = 2; i < terms.size(); ++i) kept += terms[i].letters;
    terms[0] = contract(call, terms[0], terms[1], kept, sizes);
    terms.erase(terms.begin() + 1);
  }
  call.set(in_order(sum_over(terms[0], result), result).tensor);
}
}  // namespace

OnnxOperatorRows matrix_operators() {
  return {
      {"Einsum", einsum, "without \"...\" and repeated letters in a term"},
      {"Gemm", gemm_operator},
      {"MatMul", matmul_operator},
  };
}
}  // namespace linnet
