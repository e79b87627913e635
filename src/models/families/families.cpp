#include <string_view>
#include "base/fail.h"
#include "models/families/family.h"

namespace linnet {
// A new family is a file of this folder and its name here. The file <name>.cpp defines families_of_<name>().
#define LINNET_FAMILIES(ROW) \
  ROW(gpt2)                  \
  ROW(bert)                  \
  ROW(roberta)               \
  ROW(llama)                 \
  ROW(qwen3)                 \
  ROW(moe)                   \
  ROW(t5)                    \
  ROW(marian)                \
  ROW(bart)                  \
  ROW(gemma)                 \
  ROW(embedding_gemma)       \
  ROW(phi3)                  \
  ROW(olmo2)                 \
  ROW(smollm3)               \
  ROW(granite)               \
  ROW(gpt_neox)              \
  ROW(opt)                   \
  ROW(starcoder2)            \
  ROW(stablelm)              \
  ROW(distilbert)            \
  ROW(electra)               \
  ROW(mpnet)                 \
  ROW(albert)                \
  ROW(modernbert)            \
  ROW(deberta)               \
  ROW(nomic)                 \
  ROW(gte)                   \
  ROW(jina)                  \
  ROW(vit)

#define LINNET_DECLARE(name) FamilyList families_of_##name();
LINNET_FAMILIES(LINNET_DECLARE)

const FamilyList& families() {
  static const FamilyList list = [] {
    FamilyList all;
#define LINNET_ADD(name) \
  for (const auto& family : families_of_##name()) all.push_back(family);
    LINNET_FAMILIES(LINNET_ADD)
    return all;
  }();
  return list;
}

namespace {
// Of several families of one model_type, the last with the architecture that takes the folder; else the first.
const Family* family_of(const std::string& model_type, const ConfigFile& config = ConfigFile()) {
  const std::vector<std::string> named = config.texts("architectures");
  const Family *found = nullptr, *taken = nullptr;
  for (const auto& family : families()) {
    if (model_type != family->model_type) continue;
    if (!found) found = family.get();
    for (const Architecture& own : family->architectures)
      if (!named.empty() && own.name == named[0] && family->takes(config)) taken = family.get();
  }
  return taken ? taken : found;
}

const Family* family_of(const ConfigFile& config) { return family_of(config.text("model_type", ""), config); }

template <class Which> std::string names_of_families(const char* quote, Which which) {
  std::string text;
  for (const auto& family : families())
    if (which(*family) && family.get() == family_of(family->model_type))
      text += (text.empty() ? "" : ", ") + (quote + std::string(family->model_type)) + quote;
  return text;
}
}  // namespace

const Architecture& Family::architecture(ModelHead head) const {
  for (const Architecture& architecture : architectures)
    if (architecture.head == head) return architecture;
  const char* what = head == ModelHead::kClasses        ? "classifier"
                     : head == ModelHead::kTokens       ? "head that finds tokens"
                     : head == ModelHead::kTokenClasses ? "classifier of tokens"
                     : head == ModelHead::kSpans        ? "head that finds answers in a text"
                                                        : "form without a head";
  fail_user("a model of type \"", model_type, "\" has no ", what);
}

const Family& find_family(const ConfigFile& config) {
  const std::string type = config.text("model_type");
  if (const Family* family = family_of(config)) return *family;
  config.fail("\"model_type\" is \"", type, "\", which Linnet does not know (",
      names_of_families("", [](const Family&) { return true; }), ")");
}

const Family& find_family(const std::string& model_type) {
  if (const Family* family = family_of(model_type)) return *family;
  fail_internal("there is no family \"", model_type, "\"");
}

std::string names_of_kind(FamilyKind kind) {
  return names_of_families("\"", [kind](const Family& family) { return family.kind == kind; });
}

std::optional<ModelHead> named_head(const ConfigFile& config) {
  const Family* family = family_of(config);
  const std::vector<std::string> named = config.texts("architectures");
  if (!family || named.empty()) return std::nullopt;
  for (const Architecture& architecture : family->architectures)
    if (named[0] == architecture.name) return architecture.head;
  return std::nullopt;
}
}  // namespace linnet
