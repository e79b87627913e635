// How well numbers go together: correlations of two series, and texts that find each other by their embeddings.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace linnet {

// Pearson's correlation, from -1 to 1; 0 where either series is constant. The series are equally long.
double pearson_correlation(std::span<const double> a, std::span<const double> b);
// Spearman's: Pearson's of the ranks; equal numbers share the mean of their ranks.
double spearman_correlation(std::span<const double> a, std::span<const double> b);

// How well texts find the texts that go with them by the cosines of their embeddings: recall, mean reciprocal rank and
// nDCG (Järvelin & Kekäläinen 2002), as sentence-transformers' InformationRetrievalEvaluator.
// Every document is a candidate for every query. Equal texts are one.
class Retrieval {
 public:
  explicit Retrieval(size_t width) : width_(width) {}
  void add_document(const std::string& text, std::span<const float> embedding);
  // A query with a document that it should find, beside those of other calls with the same query.
  void add_pair(const std::string& query, std::span<const float> embedding, const std::string& document,
                std::span<const float> document_embedding);

  // "mrr_10", "ndcg_10", "recall_1", "recall_10": means over the queries, of the best documents, so many of them.
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
