#include "models/families/family.h"
#include "models/families/vit.h"

namespace linnet {

const FamilyList& families() {
  static const FamilyList list = [] {
    FamilyList all = families_of_texts();
    all.push_back(&kVitFamily);
    return all;
  }();
  return list;
}

}  // namespace linnet
