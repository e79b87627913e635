#include "engine/ir/attrs.h"
#include "base/numbers.h"

namespace linnet {
namespace {
// A member as text. `word` names it without its value: the name of a bool, the value of an enumeration.
struct Member {
  std::string text, word;
};

class TextVisitor : public FieldVisitor {
 public:
  std::vector<Member> members;

  void operator()(const char* name, bool& value) override {
    members.push_back({value ? path_ + name : path_ + "no_" + name, value ? name : ""});
  }

 protected:
  void member(const char* name, const Value& value) override {
    const auto text = [](auto held) {
      if constexpr (requires { held.size(); }) return list_text(held);
      else return shortest(held);
    };
    add(name, std::visit(text, value));
  }
  void enumeration(const char* name, int64_t index, std::span<const char* const> names) override {
    add(name, names[index]);
    members.back().word = names[index];
  }
  void begin(const char* name) override {
    before_.push_back(path_.size());
    if (*name) path_ += std::string(name) + ".";
  }
  void begin_list(const char* name, int64_t count) override {
    add(name, shortest(count));
    begin(name);
  }
  void end() override {
    path_.resize(before_.back());
    before_.pop_back();
  }

 private:
  void add(const char* name, const std::string& value) { members.push_back({path_ + name + "=" + value, ""}); }

  std::string path_;  // of nested structs: "norm."
  std::vector<size_t> before_;
};

// All members one after another, in memory's order; lists and shapes follow their lengths.
class ByteVisitor : public FieldVisitor {
 public:
  std::string bytes;

  void operator()(const char*, bool& value) override { add(value); }

 protected:
  void member(const char*, const Value& value) override {
    std::visit([this](auto held) { add(held); }, value);
  }
  void enumeration(const char*, int64_t index, std::span<const char* const>) override { add(index); }
  void begin(const char*) override {}
  void begin_list(const char*, int64_t count) override { add(count); }
  void end() override {}

 private:
  template <class T> void add(T value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
  template <class T> void add(std::span<const T> values) {
    add(values.size());
    for (const T value : values) add(value);
  }
};

std::vector<Member> members_of(WalkFields walk, const void* value) {
  TextVisitor visitor;
  walk(const_cast<void*>(value), visitor);
  return visitor.members;
}

// Calls use(member) for each that differs from `defaults`. Lists of different lengths end the comparison.
template <class Use> void for_changed(WalkFields walk, const void* value, const void* defaults, Use&& use) {
  const std::vector<Member> members = members_of(walk, value), others = members_of(walk, defaults);
  for (size_t i = 0; i < members.size(); ++i)
    if (members.size() != others.size() || members[i].text != others[i].text) use(members[i]);
}
}  // namespace

bool Attrs::operator==(const Attrs& other) const {
  if (held_ == other.held_) return true;
  return held_ && other.held_ && held_->type() == other.held_->type() && bytes() == other.bytes();
}

void FieldVisitor::operator()(const char* name, std::vector<int>& value) {
  std::vector<int64_t> wide(value.begin(), value.end());
  (*this)(name, wide);
}

void FieldVisitor::operator()(const char* name, TensorType& value) {
  begin(name);
  (*this)("dtype", value.dtype);
  (*this)("shape", value.shape);
  end();
}

std::string field_bytes(WalkFields walk, const void* value) {
  ByteVisitor visitor;
  walk(const_cast<void*>(value), visitor);
  return visitor.bytes;
}

std::string fields_text(WalkFields walk, const void* value, const void* defaults) {
  std::string text;
  for_changed(walk, value, defaults, [&](const Member& member) { text += (text.empty() ? "" : " ") + member.text; });
  return text;
}

std::vector<std::string> field_words(WalkFields walk, const void* value, const void* defaults) {
  std::vector<std::string> words;
  for_changed(walk, value, defaults, [&](const Member& member) {
    if (!member.word.empty()) words.push_back(member.word);
  });
  return words;
}
}  // namespace linnet
