// Correlations of two series, and retrieval of texts by their embeddings.
#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace linnet {
// Pearson's correlation, from -1 to 1; 0 if either series is constant. The series are equally long.
double pearson_correlation(std::span<const double> a, std::span<const double> b);
// Pearson's correlation of the ranks; equal numbers share the mean of their ranks.
double spearman_correlation(std::span<const double> a, std::span<const double> b);

// Recall, mean reciprocal rank and nDCG (Järvelin & Kekäläinen 2002) of retrieval by cosine, as in
// sentence-transformers' InformationRetrievalEvaluator. All documents are candidates for every query.
class Retrieval {
 public:
  explicit Retrieval(size_t width) : width_(width) {}
  void add_document(const std::string& text, std::span<const float> embedding);
  // A query and one of the documents it should find; calls with the same query add up.
  void add_pair(const std::string& query, std::span<const float> embedding, const std::string& document,
      std::span<const float> document_embedding);

  // "mrr_10", "ndcg_10", "recall_1", "recall_10": means over the queries, of that many best documents.
  std::vector<std::pair<std::string, double>> metrics() const;

 private:
  struct Texts {
    std::map<std::string, size_t> numbers;
    std::vector<float> rows;  // of length 1
  };
  size_t number_of(Texts& texts, const std::string& text, std::span<const float> embedding) const;

  const size_t width_;
  Texts queries_, documents_;
  std::vector<std::vector<size_t>> wanted_;  // of each query, documents
};
}  // namespace linnet
