// The machine of https://github.com/python/cpython/blob/main/Lib/pickletools.py, without what calls and imports.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include "formats/pickled_file.h"

namespace linnet {
namespace {

enum class Role { kStorage, kOrderedDict, kSize, kTensor, kParameter };
// What a pickle of tensors names.
struct Known {
  std::string_view name;
  Role role;
  FileDType dtype = FileDType::kF32;  // of a storage
};
constexpr Known kKnown[] = {
    {"collections.OrderedDict", Role::kOrderedDict},
    {"torch.Size", Role::kSize},
    {"torch._utils._rebuild_tensor_v2", Role::kTensor},
    {"torch._utils._rebuild_parameter", Role::kParameter},
    {"torch.DoubleStorage", Role::kStorage, FileDType::kF64},
    {"torch.FloatStorage", Role::kStorage, FileDType::kF32},
    {"torch.HalfStorage", Role::kStorage, FileDType::kF16},
    {"torch.BFloat16Storage", Role::kStorage, FileDType::kBF16},
    {"torch.LongStorage", Role::kStorage, FileDType::kI64},
    {"torch.IntStorage", Role::kStorage, FileDType::kI32},
    {"torch.ShortStorage", Role::kStorage, FileDType::kI16},
    {"torch.CharStorage", Role::kStorage, FileDType::kI8},
    {"torch.ByteStorage", Role::kStorage, FileDType::kU8},
    {"torch.BoolStorage", Role::kStorage, FileDType::kBool},
};

using Ref = uint32_t;  // of a value: an index
constexpr size_t kMostPickledValues = 5'000'000, kMostBytes = 100'000'000;

struct Value {
  enum class Kind { kOther, kNumber, kText, kTuple, kList, kDict, kKnown, kStorage, kTensor };
  Kind kind = Kind::kOther;
  int64_t number = 0;       // kNumber; kKnown: its row
  std::string_view text{};  // kText; kStorage: its key
  // A dictionary's keys and values, in turn; a storage's type; a tensor's storage, offset, sizes and strides.
  std::vector<Ref> items{};
};
using Kind = Value::Kind;

class Machine {
 public:
  Machine(std::string_view bytes, const FailFile& fail) : bytes_(bytes), fail_(fail) {
    if (bytes.size() > kMostBytes) fail_("its pickle has " + std::to_string(bytes.size()) + " bytes");
  }

  std::vector<PickledTensor> tensors() {
    while (!stopped_) step();
    const Value& top = at(pop());
    if (top.kind != Kind::kDict) fail_("it holds no dictionary of tensors");
    std::vector<PickledTensor> result;
    for (size_t i = 0; i < top.items.size(); i += 2) {
      const Value &key = at(top.items[i]), &value = at(top.items[i + 1]);
      if (key.kind != Kind::kText) fail_("a tensor's name is no text");
      if (value.kind != Kind::kTensor) fail_(quoted_name(key.text) + " is no tensor");
      const Value& storage = at(value.items[0]);
      result.push_back({std::string(key.text), kKnown[at(storage.items[0]).number].dtype, std::string(storage.text),
                        at(value.items[1]).number, numbers(value.items[2]), numbers(value.items[3])});
    }
    return result;
  }

 private:
  struct Instruction {
    int code;
    const char* name;
    void (*run)(Machine& m);
  };
  static std::span<const Instruction> instructions() {
    static constexpr Instruction kAll[] = {
        {0x80, "PROTO", [](Machine& m) { m.take(1); }},
        {0x95, "FRAME", [](Machine& m) { m.take(8); }},
        {'.', "STOP", [](Machine& m) { m.stopped_ = true; }},
        {'(', "MARK", [](Machine& m) { m.marks_.push_back(m.stack_.size()); }},
        {'0', "POP", [](Machine& m) { m.pop(); }},
        {'N', "NONE", [](Machine& m) { m.push({}); }},
        {0x88, "NEWTRUE", [](Machine& m) { m.push_number(1); }},
        {0x89, "NEWFALSE", [](Machine& m) { m.push_number(0); }},
        {'J', "BININT", [](Machine& m) { m.push_number(static_cast<int32_t>(m.natural(4))); }},
        {'K', "BININT1", [](Machine& m) { m.push_number(m.natural(1)); }},
        {'M', "BININT2", [](Machine& m) { m.push_number(m.natural(2)); }},
        {0x8a, "LONG1", [](Machine& m) { m.push_long(); }},
        {'G', "BINFLOAT", [](Machine& m) { m.take(8), m.push({}); }},
        {'X', "BINUNICODE", [](Machine& m) { m.push_text(4); }},
        {'T', "BINSTRING", [](Machine& m) { m.push_text(4); }},
        {0x8c, "SHORT_BINUNICODE", [](Machine& m) { m.push_text(1); }},
        {'U', "SHORT_BINSTRING", [](Machine& m) { m.push_text(1); }},
        {'c', "GLOBAL", [](Machine& m) { m.push_global(); }},
        {0x93, "STACK_GLOBAL", [](Machine& m) { m.push_known(m.pop_last(2)); }},
        {')', "EMPTY_TUPLE", [](Machine& m) { m.push({Kind::kTuple}); }},
        {'t', "TUPLE", [](Machine& m) { m.push({.kind = Kind::kTuple, .items = m.pop_mark()}); }},
        {0x85, "TUPLE1", [](Machine& m) { m.push({.kind = Kind::kTuple, .items = m.pop_last(1)}); }},
        {0x86, "TUPLE2", [](Machine& m) { m.push({.kind = Kind::kTuple, .items = m.pop_last(2)}); }},
        {0x87, "TUPLE3", [](Machine& m) { m.push({.kind = Kind::kTuple, .items = m.pop_last(3)}); }},
        {']', "EMPTY_LIST", [](Machine& m) { m.push({Kind::kList}); }},
        {'a', "APPEND", [](Machine& m) { m.append(Kind::kList, m.pop_last(1)); }},
        {'e', "APPENDS", [](Machine& m) { m.append(Kind::kList, m.pop_mark()); }},
        {'}', "EMPTY_DICT", [](Machine& m) { m.push({Kind::kDict}); }},
        {'s', "SETITEM", [](Machine& m) { m.append(Kind::kDict, m.pop_last(2)); }},
        {'u', "SETITEMS", [](Machine& m) { m.append(Kind::kDict, m.pop_mark()); }},
        {'q', "BINPUT", [](Machine& m) { m.memo_[m.natural(1)] = m.top(); }},
        {'r', "LONG_BINPUT", [](Machine& m) { m.memo_[m.natural(4)] = m.top(); }},
        {0x94, "MEMOIZE", [](Machine& m) { m.memo_[std::ssize(m.memo_)] = m.top(); }},
        {'h', "BINGET", [](Machine& m) { m.get(m.natural(1)); }},
        {'j', "LONG_BINGET", [](Machine& m) { m.get(m.natural(4)); }},
        {'Q', "BINPERSID", [](Machine& m) { m.push_storage(m.pop()); }},
        {'R', "REDUCE", [](Machine& m) { m.reduce(); }},
        {'b', "BUILD", [](Machine& m) { m.build(); }},
    };
    return kAll;
  }
  void step() {
    const int code = static_cast<unsigned char>(take(1)[0]);
    const auto found = std::ranges::find(instructions(), code, &Instruction::code);
    if (found == instructions().end())
      fail_("its pickle has the instruction " + std::to_string(code) + ", which tensors do not need");
    found->run(*this);
  }

  std::string_view take(size_t count) {
    if (count > bytes_.size()) fail_("its pickle is cut short");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  int64_t natural(size_t bytes) {  // little endian
    uint32_t value = 0;
    std::memcpy(&value, take(bytes).data(), bytes);
    return value;
  }
  std::string_view line() {
    const std::string_view result = take(std::min(bytes_.find('\n'), bytes_.size() - 1) + 1);
    return result.substr(0, result.size() - 1);
  }

  const Value& at(Ref ref) const { return values_[ref]; }
  std::string_view text(Ref ref) const {
    if (at(ref).kind != Kind::kText) fail_("its pickle has something else where a name belongs");
    return at(ref).text;
  }
  int64_t number(Ref ref) const {
    if (at(ref).kind != Kind::kNumber) fail_("its pickle has something else where a number belongs");
    return at(ref).number;
  }
  std::vector<int64_t> numbers(Ref tuple) const {
    if (at(tuple).kind != Kind::kTuple) fail_("its pickle has something else where a shape belongs");
    std::vector<int64_t> result;
    for (const Ref item : at(tuple).items) result.push_back(number(item));
    return result;
  }

  void push(Value value) {
    if (values_.size() >= kMostPickledValues)
      fail_("its pickle has more than " + std::to_string(kMostPickledValues) + " values");
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Ref>(values_.size() - 1));
  }
  void push_number(int64_t number) { push({.kind = Kind::kNumber, .number = number}); }
  void push_text(size_t length_bytes) {
    push({.kind = Kind::kText, .text = take(static_cast<size_t>(natural(length_bytes)))});
  }
  void push_long() {  // of two's complement
    const auto count = static_cast<size_t>(natural(1));
    if (count > 8) fail_("its pickle has a number of " + std::to_string(count) + " bytes");
    const std::string_view taken = take(count);
    int64_t value = count > 0 && (taken.back() & 0x80) != 0 ? -1 : 0;
    std::memcpy(&value, taken.data(), count);
    push_number(value);
  }
  void push_global() {
    const std::string_view module = line();
    push_known(module, line());
  }
  void push_known(const std::vector<Ref>& names) { push_known(text(names[0]), text(names[1])); }
  void push_known(std::string_view module, std::string_view name) {
    const std::string full = std::string(module) + "." + std::string(name);
    for (const Known& known : kKnown)
      if (known.name == full) return push({.kind = Kind::kKnown, .number = &known - kKnown});
    fail_("its pickle names " + quoted_name(full) + "; Linnet reads tensors alone and runs nothing");
  }

  Ref top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail_("its pickle takes what is not there");
    return stack_.back();
  }
  Ref pop() {
    const Ref result = top();
    stack_.pop_back();
    return result;
  }
  std::vector<Ref> pop_last(size_t count) {
    std::vector<Ref> result(count);
    while (count > 0) result[--count] = pop();
    return result;
  }
  std::vector<Ref> pop_mark() {
    if (marks_.empty()) fail_("its pickle takes what is not there");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Ref> result(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return result;
  }
  void append(Kind kind, const std::vector<Ref>& items) {
    Value& to = values_[top()];
    if (to.kind != kind || (kind == Kind::kDict && items.size() % 2 != 0)) fail_("its pickle adds to what is no list");
    to.items.insert(to.items.end(), items.begin(), items.end());
  }
  void get(int64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail_("its pickle takes what is not there");
    stack_.push_back(found->second);
  }

  // ("storage", type, key, where it was, number of elements)
  void push_storage(Ref id) {
    const Value& tuple = at(id);
    const bool storage = tuple.kind == Kind::kTuple && tuple.items.size() == 5 && text(tuple.items[0]) == "storage" &&
                         at(tuple.items[1]).kind == Kind::kKnown &&
                         kKnown[at(tuple.items[1]).number].role == Role::kStorage;
    if (!storage) fail_("its pickle refers to something else than a storage");
    push({.kind = Kind::kStorage, .text = text(tuple.items[2]), .items = {tuple.items[1]}});
  }

  void reduce() {
    const Ref arguments = pop(), callable = pop();
    if (at(callable).kind != Kind::kKnown || at(arguments).kind != Kind::kTuple)
      fail_("its pickle calls what is no function");
    const Known& known = kKnown[at(callable).number];
    const std::vector<Ref> given = at(arguments).items;
    const auto is = [&](size_t i, Kind kind) { return i < given.size() && at(given[i]).kind == kind; };
    if (known.role == Role::kOrderedDict && given.empty()) return push({Kind::kDict});
    if (known.role == Role::kSize && is(0, Kind::kTuple)) return stack_.push_back(given[0]);
    if (known.role == Role::kParameter && is(0, Kind::kTensor)) return stack_.push_back(given[0]);
    // storage, offset, sizes, strides, requires_grad, hooks and, of what is conjugated or negated, a dictionary
    const bool plain = !is(6, Kind::kDict) || at(given[6]).items.empty();
    if (known.role == Role::kTensor && is(0, Kind::kStorage) && is(1, Kind::kNumber) && is(2, Kind::kTuple) &&
        is(3, Kind::kTuple) && plain)
      return push({.kind = Kind::kTensor, .items = {given.begin(), given.begin() + 4}});
    fail_("its pickle calls " + std::string(known.name) + " with other arguments than tensors have");
  }
  // Attributes of a dictionary: its versions.
  void build() {
    pop();
    if (at(top()).kind != Kind::kDict) fail_("its pickle sets attributes of what is no dictionary");
  }

  std::string_view bytes_;
  const FailFile& fail_;
  bool stopped_ = false;
  std::deque<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<int64_t, Ref> memo_;
};

}  // namespace

std::vector<PickledTensor> read_pickle(std::string_view bytes, const FailFile& fail) {
  return Machine(bytes, fail).tensors();
}

}  // namespace linnet
