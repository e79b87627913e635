#include <algorithm>
#include <cstring>
#include <unordered_map>
#include "base/fail.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "formats/tensor_file.h"

namespace linnet {
// A machine for https://github.com/python/cpython/blob/main/Lib/pickletools.py, without calls and imports.

namespace {
enum class Role { kStorage, kOrderedDict, kSize, kTensor, kParameter };
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
  // Alternating keys and values of a dictionary; a storage's type; a tensor's storage, offset, sizes, strides.
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
  const Value& expect(Ref ref, Kind kind, const char* what) const {
    if (at(ref).kind != kind) fail_(std::string("its pickle has something else where a ") + what + " belongs");
    return at(ref);
  }
  std::string_view text(Ref ref) const { return expect(ref, Kind::kText, "name").text; }
  std::vector<int64_t> numbers(Ref tuple) const {
    return mapped(expect(tuple, Kind::kTuple, "shape").items,
        [&](Ref item) { return expect(item, Kind::kNumber, "number").number; });
  }

  void push(Value value) {
    if (values_.size() >= kMostPickledValues)
      fail_("its pickle has more than " + std::to_string(kMostPickledValues) + " values");
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Ref>(values_.size() - 1));
  }
  void push_number(int64_t number) { push({.kind = Kind::kNumber, .number = number}); }
  void push_text(size_t length_bytes) { push({.kind = Kind::kText, .text = take(natural(length_bytes))}); }
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
    const auto first = stack_.begin() + marks_.back();
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
    // storage, offset, sizes, strides, requires_grad, hooks and, if conjugated or negated, a dictionary
    const bool plain = !is(6, Kind::kDict) || at(given[6]).items.empty();
    if (known.role == Role::kTensor && is(0, Kind::kStorage) && is(1, Kind::kNumber) && is(2, Kind::kTuple) &&
        is(3, Kind::kTuple) && plain)
      return push({.kind = Kind::kTensor, .items = {given.begin(), given.begin() + 4}});
    fail_("its pickle calls " + std::string(known.name) + " with other arguments than tensors have");
  }
  // Ignores attributes of a dictionary: its versions.
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

// Little-endian numbers at an offset; fails outside of the bytes.
class Bytes {
 public:
  Bytes(std::string_view bytes, const FailFile& fail) : bytes_(bytes), fail_(fail) {}
  template <class T> uint64_t number(uint64_t offset) const { return number_at<T>(part(offset, sizeof(T)).data()); }
  std::string_view part(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) fail_("it is cut short");
    return bytes_.substr(offset, size);
  }

 private:
  std::string_view bytes_;
  const FailFile& fail_;
};

constexpr uint32_t kNot32 = 0xffffffff;  // a number of 64 bits stands elsewhere

struct Directory {
  uint64_t entries, offset;
};

// The end of the archive; only a comment may follow.
Directory find_directory(std::string_view bytes, const FailFile& fail) {
  const Bytes file(bytes, fail);
  const size_t end = bytes.rfind(std::string_view("PK\5\6", 4));
  if (end == bytes.npos) fail("it has no end: it is cut short");
  Directory directory{file.number<uint16_t>(end + 10), file.number<uint32_t>(end + 16)};
  if (directory.offset == kNot32 || directory.entries == 0xffff) {
    if (end < 20 || file.part(end - 20, 4) != std::string_view("PK\6\7", 4)) fail("its directory has no end");
    const uint64_t large = file.number<uint64_t>(end - 20 + 8);
    if (file.part(large, 4) != std::string_view("PK\6\6", 4)) fail("its directory has no end");
    directory = {file.number<uint64_t>(large + 32), file.number<uint64_t>(large + 48)};
  }
  return directory;
}

// Files by name: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
std::map<std::string, std::string_view> read_zip(std::string_view bytes, const FailFile& fail) {
  const Bytes file(bytes, fail);
  const Directory directory = find_directory(bytes, fail);
  std::map<std::string, std::string_view> files;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (file.part(at, 4) != std::string_view("PK\1\2", 4)) fail("its directory is damaged");
    const uint64_t flags = file.number<uint16_t>(at + 8), method = file.number<uint16_t>(at + 10);
    const uint64_t name_size = file.number<uint16_t>(at + 28), extra_size = file.number<uint16_t>(at + 30);
    uint64_t size = file.number<uint32_t>(at + 24), offset = file.number<uint32_t>(at + 42);
    const std::string name(file.part(at + 46, name_size));
    if (method != 0 || flags % 2 != 0) fail(quoted_name(name) + " in it is compressed or encrypted");
    // Extra fields: that of 64-bit numbers has those which did not fit, in this order.
    for (uint64_t extra = at + 46 + name_size, end = extra + extra_size; extra + 4 <= end;) {
      uint64_t field = extra + 4;
      const bool large = file.number<uint16_t>(extra) == 1;
      extra = field + file.number<uint16_t>(extra + 2);
      if (!large) continue;
      if (size == kNot32) size = file.number<uint64_t>(field), field += 8;
      if (file.number<uint32_t>(at + 20) == kNot32) field += 8;  // compressed: the same
      if (offset == kNot32) offset = file.number<uint64_t>(field);
    }
    if (file.part(offset, 4) != std::string_view("PK\3\4", 4)) fail(quoted_name(name) + " is not where it should be");
    const uint64_t before = 30 + file.number<uint16_t>(offset + 26) + file.number<uint16_t>(offset + 28);
    if (!files.emplace(name, file.part(offset + before, size)).second) fail(quoted_name(name) + " is in it twice");
    at += 46 + name_size + extra_size + file.number<uint16_t>(at + 32);
  }
  return files;
}
}  // namespace

std::vector<PickledTensor> read_pickle(std::string_view bytes, const FailFile& fail) {
  return Machine(bytes, fail).tensors();
}

void PickledFile::parse(std::span<const std::byte> bytes) {
  check_is_there(bytes);
  const FailFile fail = [this](const std::string& problem) {
    fail_user("'", path_, "' is no file of PyTorch weights: ", problem);
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x80\x02\x8a\x0a"))
    fail_user("'", path_, "' has the form of PyTorch before 1.6, which Linnet does not read; in Python ",
        "torch.save(torch.load(FILE), FILE) writes it anew");
  const std::map<std::string, std::string_view> files = read_zip(text, fail);
  const auto pickle = std::ranges::find_if(files, [](const auto& file) { return file.first.ends_with("/data.pkl"); });
  if (pickle == files.end()) fail("it has no data.pkl");
  const std::string folder = pickle->first.substr(0, pickle->first.size() - std::strlen("data.pkl"));
  if (const auto order = files.find(folder + "byteorder"); order != files.end() && order->second != "little")
    fail("its numbers are " + quoted_name(order->second) + "-endian");
  for (const PickledTensor& tensor : read_pickle(pickle->second, fail)) {
    const auto storage = files.find(folder + "data/" + tensor.storage);
    if (storage == files.end()) fail("the data of tensor " + quoted_name(tensor.name) + " are not in it");
    entries_.push_back(entry_of(tensor, storage->second));
  }
  index();
}

TensorEntry PickledFile::entry_of(const PickledTensor& tensor, std::string_view storage) {
  const std::string who = "'" + path_ + "': tensor " + quoted_name(tensor.name);
  const size_t axes = tensor.sizes.size(), size = file_dtype_size(tensor.dtype);
  const uint64_t bytes = tensor_bytes(path_, "tensor " + quoted_name(tensor.name), tensor.sizes, tensor.dtype);
  if (tensor.strides.size() != axes) fail_user(who, " has not a stride for each axis");
  TensorEntry entry{tensor.name, {converted_dtype(tensor.dtype), Shape(tensor.sizes)}, nullptr, tensor.dtype};
  // The last element that the tensor reads, and whether it is contiguous.
  int64_t last = tensor.offset, dense = 1;
  bool is_dense = true, fits = tensor.offset >= 0;
  for (size_t axis = axes; axis-- > 0 && bytes > 0; dense *= tensor.sizes[axis]) {
    int64_t reach = 0;
    fits &= tensor.strides[axis] >= 0 &&
            !__builtin_mul_overflow(tensor.sizes[axis] - 1, tensor.strides[axis], &reach) &&
            !__builtin_add_overflow(last, reach, &last);
    is_dense &= tensor.sizes[axis] == 1 || tensor.strides[axis] == dense;
  }
  if (!fits || (bytes > 0 && static_cast<uint64_t>(last) >= storage.size() / size))
    fail_user(who, " reaches beyond its data");
  // Repeating axes would let a small file take any memory.
  if (bytes > storage.size()) fail_user(who, " is ", entry.text(), ", but its data have ", storage.size(), " bytes");
  const char* const from = bytes > 0 ? storage.data() + static_cast<size_t>(tensor.offset) * size : storage.data();
  entry.data = reinterpret_cast<const std::byte*>(from);
  if (is_dense) return entry;
  std::string& copy = copies_.emplace_back();
  copy.reserve(bytes);
  std::vector<int64_t> at(axes);
  for (uint64_t i = 0; i < bytes; i += size) {
    const int64_t element = sum_of<int64_t>(axes, [&](size_t axis) { return at[axis] * tensor.strides[axis]; });
    copy.append(from + static_cast<size_t>(element) * size, size);
    for (size_t axis = axes; axis-- > 0 && ++at[axis] == tensor.sizes[axis];) at[axis] = 0;
  }
  entry.data = reinterpret_cast<const std::byte*>(copy.data());
  return entry;
}
}  // namespace linnet
