// How alike sentences are: the cosine of each with the first, by a BERT folder as sentence-transformers writes them.
//
//   embed FOLDER SENTENCE SENTENCE...
#include <cstdio>
#include <numeric>
#include "base/error.h"
#include "data/text/pretrained_tokenizer.h"
#include "models/families/sentence_embedder.h"
using namespace linnet;

int run(int count, char** arguments) {
  if (count < 4) fail_user("usage: embed FOLDER SENTENCE SENTENCE...");
  const std::vector<std::string> sentences(arguments + 2, arguments + count);
  SentenceEmbedder embedder(arguments[1]);
  const auto tokenizer = load_pretrained_tokenizer(arguments[1]);
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& sentence : sentences)
    ids.push_back(tokenizer->encode(sentence, EncodeOptions{.max_length = embedder.max_tokens()}).ids);

  const std::vector<float> embeddings = embedder.embed(ids);  // one row of width() numbers for each, of length 1
  const auto width = embedder.width();
  for (size_t i = 1; i < sentences.size(); ++i) {
    const float* row = embeddings.data() + static_cast<int64_t>(i) * width;
    const float cosine = std::inner_product(row, row + width, embeddings.data(), 0.0F);
    std::printf("%.4f  %s\n", cosine, sentences[i].c_str());
  }
  return 0;
}

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error.kind());
  }
}
