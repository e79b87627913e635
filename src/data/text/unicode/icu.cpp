#include "data/text/unicode/icu.h"

#include <dlfcn.h>

#include <cerrno>
#include <string>
#include <type_traits>

#include "base/error.h"

// ICU's headers rename every function to one that ends in the version: the name of u_charType is "u_charType_72".
#define LINNET_TEXT_OF(name) #name
#define LINNET_NAME_OF(name) LINNET_TEXT_OF(name)

namespace linnet {
namespace {

constexpr const char* kLibrary = "libicuuc.so." LINNET_NAME_OF(U_ICU_VERSION_MAJOR_NUM);

IcuFunctions load() {
  void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  errno = 0;  // dlerror() tells all
  if (!library)
    fail_system(std::string("characters beyond ASCII need the library ICU, which cannot be loaded: ") + dlerror());
  const auto find = [library](auto& function, const char* name) {
    void* found = dlsym(library, name);
    if (!found) fail_system(std::string(kLibrary) + " has no function " + name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  IcuFunctions icu;
  find(icu.char_age, LINNET_NAME_OF(u_charAge));
  find(icu.char_type, LINNET_NAME_OF(u_charType));
  find(icu.combining_class, LINNET_NAME_OF(u_getCombiningClass));
  find(icu.has_binary_property, LINNET_NAME_OF(u_hasBinaryProperty));
  find(icu.to_lower, LINNET_NAME_OF(u_tolower));
  find(icu.nfc, LINNET_NAME_OF(unorm2_getNFCInstance));
  find(icu.nfd, LINNET_NAME_OF(unorm2_getNFDInstance));
  find(icu.nfkc, LINNET_NAME_OF(unorm2_getNFKCInstance));
  find(icu.nfkd, LINNET_NAME_OF(unorm2_getNFKDInstance));
  find(icu.decomposition, LINNET_NAME_OF(unorm2_getDecomposition));
  find(icu.has_boundary_before, LINNET_NAME_OF(unorm2_hasBoundaryBefore));
  find(icu.normalize, LINNET_NAME_OF(unorm2_normalize));
  find(icu.open_breaks, LINNET_NAME_OF(ubrk_open));
  find(icu.close_breaks, LINNET_NAME_OF(ubrk_close));
  find(icu.set_break_text, LINNET_NAME_OF(ubrk_setUText));
  find(icu.first_break, LINNET_NAME_OF(ubrk_first));
  find(icu.next_break, LINNET_NAME_OF(ubrk_next));
  find(icu.open_utf8, LINNET_NAME_OF(utext_openUTF8));
  find(icu.close_text, LINNET_NAME_OF(utext_close));
  return icu;
}

}  // namespace

const IcuFunctions& icu() {
  static const IcuFunctions functions = load();
  return functions;
}

}  // namespace linnet
