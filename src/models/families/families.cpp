#include "models/families/family.h"

namespace linnet {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> list{&kGpt2Family,  &kBertFamily, &kLlamaFamily,  &kMistralFamily,
                                               &kQwen2Family, &kT5Family,   &kMarianFamily, &kVitFamily};
  return list;
}

}  // namespace linnet
