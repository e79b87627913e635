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
  for (const Family* family : families_of_##name()) all.push_back(family);
    LINNET_FAMILIES(LINNET_ADD)
    return all;
  }();
  return list;
}

}  // namespace linnet
