#include "tasks/inference.h"
#include "base/fail.h"
#include "base/timeline.h"
#include "engine/kernels/processor.h"
#include "engine/plan/store.h"
#include "models/families/static_scales.h"
#include "models/modules/encoder_decoder.h"
#include "models/nn/parameter_file.h"
#include "training/run/run_folder.h"

namespace linnet {
void take_model_weights(
    Session& session, const std::string& folder, const std::string& advice, const LoadWeights& load) {
  const auto packed = ParameterFile::open(folder);
  if (!packed) return take_weights(session, advice, load);
  take_memory(session, advice);
  if (!packed->load(session.store, session.layout, session.trainer->pool())) load_weights(session, load);
  session.store.push(state::kParameters);
}

namespace {
constexpr int64_t kSentences = 32;  // decoded at once

// Whether single tokens show the tokenizers to be the same in both directions.
bool same_vocabulary(const Tokenizer& a, const Tokenizer& b) {
  if (&a == &b) return true;
  if (a.kind() != b.kind() || a.vocab_size() != b.vocab_size()) return false;
  for (int32_t id = 0; id < a.vocab_size(); ++id) {
    const std::string text = a.decode({&id, 1});
    std::vector<TokenId> from_a, from_b;
    a.encode(text, from_a), b.encode(text, from_b);
    if (b.decode({&id, 1}) != text || from_a != from_b) return false;
  }
  return true;
}

void check_alike(const OpenedTranslationModel& first, const OpenedTranslationModel& other) {
  const auto refuse = [&](const std::string& what) {
    fail_user("'", other.folder, "' has another ", what, " than '", first.folder,
        "': models that translate together need the same");
  };
  const TokenizerPair &a = first.tokenizers, &b = other.tokenizers;
  if (first.model->output_vocab_size() != other.model->output_vocab_size() || !same_vocabulary(*a.target, *b.target))
    refuse("target vocabulary");
  if (!same_vocabulary(*a.source, *b.source)) refuse("source vocabulary");
  if (a.frame() != b.frame() || a.special.pad != b.special.pad)
    refuse("token for the beginning or the end of a sentence");
}

// One or several translation models, whose probabilities are averaged.
struct TranslationEnsemble : TranslationModel {
  // Run or model folders; adapters go with one model folder. User error if vocabularies differ.
  TranslationEnsemble(
      const std::vector<std::string>& folders, const std::vector<AdapterFolder>& adapters, const Languages& languages) {
    if (folders.size() > 1 && !adapters.empty()) fail_user("--adapter goes with one model");
    for (const std::string& folder : folders) {
      members.push_back(open_translation_model(folder, adapters, languages));
      check_alike(members.front(), members.back());
    }
    static_cast<TranslationModel&>(*this) = members.front();
    if (members.size() == 1) return;
    pretrained = nullptr;
    std::vector<std::shared_ptr<EncoderDecoder>> models;
    for (const OpenedTranslationModel& member : members) {
      layouts_.emplace_back(*member.model);  // with its files' names, which the ensemble changes
      models.push_back(member.model);
    }
    model = std::make_shared<Ensemble>(std::move(models));
  }

  // Fills a flat buffer in the order of the layout of `model`.
  LoadWeights weights() const {
    if (members.size() == 1) return members.front().weights();
    return [this](const ParameterLayout& layout, const ParameterTarget& parameters) {
      std::map<std::string, int64_t> offsets;
      for (const ParameterSlot& slot : layout.parameters()) offsets[slot.spec.name] = slot.offset;
      for (size_t i = 0; i < members.size(); ++i) {
        const FlatWeights flat(layouts_[i], members[i].weights());
        for (const ParameterSlot& slot : flat.layout.parameters())
          std::copy_n(flat.parameters.data() + slot.offset, slot.spec.shape.elements(),
              parameters.flat + offsets.at(std::to_string(i) + "." + slot.spec.name));
      }
    };
  }

  std::vector<OpenedTranslationModel> members;

 private:
  std::vector<ParameterLayout> layouts_;  // of the members, each by itself
};

std::unique_ptr<TranslationSession> load_session(
    const TranslationEnsemble& opened, const Config& config, std::vector<BatchShape> shapes, int64_t longest_source) {
  SessionOptions options;
  options.training = false;
  options.shapes = std::move(shapes);
  options.generation = {.beams = config.train.beam, .sentences = kSentences, .longest_source = longest_source};
  auto session = std::make_unique<TranslationSession>(config, opened, std::move(options));
  const std::string folder = opened.members.size() == 1 ? opened.members[0].folder : "";
  take_model_weights(*session, folder, "; a smaller beam needs less", opened.weights());
  return session;
}

// Limits sentences to the shortest model's length.
void shorten(const TranslationEnsemble& opened, Config& config) {
  for (const OpenedTranslationModel& member : opened.members)
    config.model.max_seq_len = std::min(config.model.max_seq_len, member.config.model.max_seq_len);
}
}  // namespace

void apply(const InferenceOptions& options, Config& config, const std::string& folder) {
  if (options.beams > 0) config.train.beam = options.beams;
  if (!options.languages.source.empty()) config.data.source_language = options.languages.source;
  if (!options.languages.target.empty()) config.data.target_language = options.languages.target;
  if (options.threads > 0) config.train.threads = options.threads;
  config.train.device = options.device;
  config.quantization = folder_quantization(folder, options.quantize, options.keep);
  config.quantization.observer = options.observer;
  // Products as Forward computes them (models/nn/forward.h).
  if (config.quantization.linear == WeightFormat::kBf16) {
    config.train.precision = "bf16";
    if (options.device == "cpu") config.train.storage = "fp32";
  }
  if (config.quantization.linear == WeightFormat::kInt8) config.train.attention_precision = "bf16";
}

void use_isa_of(const std::string& folder) {
  const RunFolder run(folder);
  force_isa(run.has_config() ? run.load_config().train.isa : "auto");
}

Config inference_config(const std::string& folder, const InferenceOptions& options) {
  Config config = is_translation_folder(folder) ? translation_folder_config(folder) : RunFolder(folder).load_config();
  apply(options, config, folder);
  return config;
}

TaskEvaluation evaluate_pairs(const std::vector<std::string>& folders, Config config, ParallelText text) {
  const TranslationEnsemble opened(folders, {}, languages_of(config));
  shorten(opened, config);
  const EvaluationSet set(std::move(text), opened.tokenizers, config.model.max_seq_len);
  const BucketOptions options{.batch_tokens = 2048, .num_buckets = 8, .max_seq_len = config.model.max_seq_len};
  const Buckets buckets = Buckets::choose(set.dataset.lengths(), options);
  const auto session = load_session(opened, config, buckets.shapes(), longest_source(buckets.shapes()));
  const SharedWork alone = SharedWork::alone();
  const double loss = mean_loss(*session, set, buckets, alone);
  return score(set, translate(*session, set, set.dataset.size(), alone), loss);
}

Translator::Translator(
    const std::vector<std::string>& folders, const Config& chosen, const std::vector<AdapterFolder>& adapters) {
  const TranslationEnsemble opened(folders, adapters, languages_of(chosen));
  Config config = chosen;
  shorten(opened, config);
  session_ = load_session(opened, config, {}, config.model.max_seq_len);
}

std::vector<std::vector<Translation>> Translator::translate(const std::vector<std::string>& lines, int n_best) {
  const TokenizerPair& tokenizers = session_->tokenizers;
  const SentenceFrame frame = tokenizers.frame();
  std::vector<std::vector<int32_t>> sources;
  std::vector<size_t> line_of;  // empty lines are not translated
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids;
    tokenizers.source->encode(lines[i], ids);
    if (ids.empty()) continue;
    cut_lines_ += frame_sentence(ids, frame.source_begin, frame.source_end, session_->config.model.max_seq_len);
    sources.push_back(std::move(ids));
    line_of.push_back(i);
  }
  std::vector<std::vector<Translation>> result(lines.size(), {{"", 0}});
  const double began = now();
  const auto generated = session_->generator->generate(sources, n_best, session_->trainer->pool());
  search_seconds_ += now() - began;
  for (size_t i = 0; i < generated.size(); ++i) {
    result[line_of[i]].clear();
    for (const Hypothesis& hypothesis : generated[i])
      result[line_of[i]].push_back({tokenizers.target->decode(hypothesis.ids), hypothesis.score});
  }
  return result;
}
}  // namespace linnet
