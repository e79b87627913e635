// T5 (Raffel et al. 2020).
#pragma once
#include "models/families/family.h"
#include "models/modules/t5.h"

namespace linnet {

using T5Family = ConfiguredFamily<T5Config>;
extern const T5Family kT5Family;

}  // namespace linnet
