#include "tasks/translation/translation_ensemble.h"
#include <algorithm>
#include <map>
#include "base/fail.h"
#include "models/modules/encoder_decoder.h"

namespace linnet {
namespace {
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
}  // namespace

TranslationEnsemble::TranslationEnsemble(
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

LoadWeights TranslationEnsemble::weights() const {
  if (members.size() == 1) return members.front().weights();
  return [this](const ParameterLayout& layout, const ParameterTarget& parameters) {
    std::map<std::string, int64_t> offsets;
    for (const ParameterSlot& slot : layout.parameters()) offsets[slot.spec.name] = slot.offset;
    for (size_t i = 0; i < members.size(); ++i) {
      const std::vector<float> weights = flat_weights(layouts_[i], members[i].weights());
      for (const ParameterSlot& slot : layouts_[i].parameters())
        std::copy_n(weights.data() + slot.offset, slot.spec.shape.elements(),
            parameters.flat + offsets.at(std::to_string(i) + "." + slot.spec.name));
    }
  };
}
}  // namespace linnet
