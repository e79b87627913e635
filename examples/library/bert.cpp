// Fine-tunes a BERT folder with a head of one's own; the embeddings and the lower half of the layers are frozen:
//
//   bert FOLDER LINES.TSV OUT [EPOCHS]      lines "text<TAB>label" under a header
//
// OUT is a folder that transformers loads, with the head in head.safetensors, and logits.txt has the logits of each
// line of the file: tools/check_export.py computes them there.
#include <linnet/linnet.h>
#include <cstdio>
#include <cstdlib>
using namespace linnet;

struct Classifier : Module {
  explicit Classifier(const std::string& folder) : bert{this, "bert", folder}, out{this, "out", 32, 2} {}
  Tensor operator()(Tensor tokens, Tensor lengths) {
    const Tensor states = bert(tokens, lengths);
    const Tensor first = reshape(slice(states, 1, 0, 1), {tokens.dim(0), bert.width()});
    return out(dropout(relu(hidden(first))));
  }
  PretrainedBert bert;
  Linear hidden{this, "hidden", bert.width(), 32, he_normal()}, out;
  Dropout dropout{this, "dropout", 0.1f};
};

// The logits of each line by itself, in the order of the file. A row is padded to the shorter of two lengths that fits.
void write_logits(Learner& learner, const Dataset& lines, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) fail_system("cannot write " + path);
  for (int64_t i = 0; i < lines.size(); ++i) {
    const Arrays sample = lines.sample(i);
    const std::span<const int32_t> tokens = sample.get<int32_t>("tokens");
    std::vector<int32_t> row(tokens.begin(), tokens.end());
    row.resize(row.size() <= 16 ? 16 : 32);
    Arrays request;
    request.set("tokens", {1, static_cast<int64_t>(row.size())}, row);
    request.set("tokens_length", {1}, {static_cast<int32_t>(tokens.size())});
    const Arrays answer = learner.predict(request);
    const auto logits = answer.get<float>("logits");
    std::fprintf(file, "%.9g %.9g\n", static_cast<double>(logits[0]), static_cast<double>(logits[1]));
  }
  if (std::fclose(file) != 0) fail_system("cannot write " + path);
}

int run(int count, char** words) {
  if (count < 4) fail_user("usage: bert FOLDER LINES.TSV OUT [EPOCHS]");
  const std::string folder = words[1];
  const auto tokenizer = load_pretrained_tokenizer(folder);
  const Dataset lines = Dataset::tsv(words[2], *tokenizer, /*text_column=*/0, /*label_column=*/1, /*header=*/true,
      /*max_length=*/32);
  const auto [train, test] = lines.split(0.8);
  const LoaderOptions buckets{.batch = 8, .shuffle = true, .buckets = {16, 32}};
  Loader batches(train, buckets), test_batches(test, buckets);

  Classifier model(folder);
  Learner learner(model,
      [&](Tracer& trace) -> Loss {
        const Tensor logits = model(trace.input("tokens"), trace.input("tokens_length"));
        const Tensor labels = trace.input("labels");
        trace.output("logits", logits);
        return {.sum = cross_entropy_sum(logits, labels), .count = count_targets(labels)};
      },
      batches.shapes(),
      {.optimizer = AdamW{.weight_decay = 0.01},
          .clip_norm = 1,
          .groups = {{.patterns = {"bert.bert.words.*", "bert.bert.positions.*", "bert.bert.types.*",
                          "bert.bert.embedding_norm.*", "bert.bert.layers.0.*", "bert.pooler.*"},
                         .frozen = true},
              {.patterns = {"bert.*"}, .rate_factor = 0.1}},
          .evaluation_shapes = test_batches.shapes()});
  const LoadReport report = model.bert.load(learner);
  std::printf("%zu parameters are BERT's, new are", report.taken.size());
  for (const std::string& name : report.fresh) std::printf(" %s", name.c_str());
  std::printf("\n");

  learner.fit(batches, {.epochs = count > 4 ? std::atoll(words[4]) : 3, .rate = 1e-3});
  const Evaluation result = learner.evaluate(test_batches, {accuracy()});
  std::printf("loss %.3f, accuracy %.1f%%\n", result.loss, 100 * result.metrics.at("accuracy"));
  model.bert.save(learner, words[3]);
  write_logits(learner, lines, std::string(words[3]) + "/logits.txt");
  return 0;
}

int main(int count, char** words) try { return run(count, words); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
