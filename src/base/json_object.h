// The members of a JSON object and the index over them; for json*.cpp alone.
#pragma once
#include "base/json.h"

namespace linnet {

struct Json::Object {
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr uint32_t kEmpty = UINT32_MAX;

  // The member with this key, or kNone. `compared` counts the keys that were looked at.
  size_t position(std::string_view key, size_t* compared = nullptr) const;
  Json& add(std::string key, Json value);  // a key that is not there yet
  void index();                            // anew, after members have moved

  std::vector<Member> members;
  std::vector<uint32_t> slots = {};  // a hash table of positions in `members`; empty while these are few

 private:
  void put(size_t member);
};

}  // namespace linnet
