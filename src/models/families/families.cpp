#include "models/families/family.h"
#include "models/families/vit.h"

namespace linnet {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> list = [] {
    std::vector<const Family*> all = families_of_texts();
    all.push_back(&kVitFamily);
    return all;
  }();
  return list;
}

}  // namespace linnet
