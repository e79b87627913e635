#include "models/families/decoder_family.h"
#include "models/families/encoder_family.h"
#include "models/families/marian.h"
#include "models/families/t5.h"

namespace linnet {

extern const DecoderFamily kGpt2Family, kLlamaFamily, kMistralFamily, kQwen2Family, kQwen3Family;
extern const EncoderFamily kBertFamily, kRobertaFamily;

const std::vector<const Family*>& families_of_texts() {
  static const std::vector<const Family*> list{&kGpt2Family,  &kBertFamily,    &kRobertaFamily,
                                               &kLlamaFamily, &kMistralFamily, &kQwen2Family,
                                               &kQwen3Family, &kT5Family,      &kMarianFamily};
  return list;
}

}  // namespace linnet
