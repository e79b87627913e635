// Fields as bytes: for each member its name, its kind and its value, so that a member added later does not make old
// files unreadable.
#include <map>
#include <optional>

#include "engine/ir/bytes.h"
#include "engine/ir/fields.h"

namespace linnet {
namespace {

enum class Kind : uint8_t { kBool, kInteger, kUnsigned, kDouble, kFloat, kShape, kIntegers, kFloats, kEnum, kStruct };

class Writer : public FieldVisitor {
 public:
  std::string take() { return open_.back().take(); }

  void operator()(const char* name, bool& value) override { add(name, Kind::kBool).number(uint8_t{value}); }
  void operator()(const char* name, int64_t& value) override { add(name, Kind::kInteger).number(value); }
  void operator()(const char* name, uint64_t& value) override { add(name, Kind::kUnsigned).number(value); }
  void operator()(const char* name, double& value) override { add(name, Kind::kDouble).number(value); }
  void operator()(const char* name, float& value) override { add(name, Kind::kFloat).number(value); }
  void operator()(const char* name, Shape& value) override { list(add(name, Kind::kShape), value.sizes()); }
  void operator()(const char* name, std::vector<int64_t>& value) override {
    list(add(name, Kind::kIntegers), std::span<const int64_t>(value));
  }
  void operator()(const char* name, std::vector<float>& value) override {
    list(add(name, Kind::kFloats), std::span<const float>(value));
  }

 protected:
  void enumeration(const char* name, int64_t& index, std::span<const char* const> names) override {
    add(name, Kind::kEnum).string(names[static_cast<size_t>(index)]);
  }
  void begin(const char* name) override {
    names_.emplace_back(name);
    open_.emplace_back();
  }
  void begin_list(const char* name, int64_t& count) override {
    begin(name);
    open_.back().number(static_cast<uint32_t>(count));
  }
  void end() override {
    const std::string bytes = open_.back().take();
    open_.pop_back();
    add(names_.back().c_str(), Kind::kStruct).string(bytes);
    names_.pop_back();
  }

 private:
  ByteWriter& add(const char* name, Kind kind) {
    ByteWriter& bytes = open_.back();
    bytes.string(name);
    bytes.number(static_cast<uint8_t>(kind));
    return bytes;
  }
  template <class T>
  static void list(ByteWriter& bytes, std::span<const T> values) {
    bytes.number(static_cast<uint32_t>(values.size()));
    for (const T value : values) bytes.number(value);
  }

  std::vector<ByteWriter> open_{1};  // the innermost struct last
  std::vector<std::string> names_;   // of the open structs, without the outermost
};

class Reader : public FieldVisitor {
 public:
  Reader(std::string_view bytes, const std::string& what) { open(bytes, what, false); }

  void operator()(const char* name, bool& value) override {
    if (auto bytes = find(name, Kind::kBool)) value = bytes->number<uint8_t>() != 0;
  }
  void operator()(const char* name, int64_t& value) override { number(name, Kind::kInteger, value); }
  void operator()(const char* name, uint64_t& value) override { number(name, Kind::kUnsigned, value); }
  void operator()(const char* name, double& value) override { number(name, Kind::kDouble, value); }
  void operator()(const char* name, float& value) override { number(name, Kind::kFloat, value); }
  void operator()(const char* name, Shape& value) override {
    std::vector<int64_t> sizes;
    if (!list(name, Kind::kShape, sizes)) return;
    if (sizes.size() > kMaxRank) levels_.back().rest.fail("a shape has too many axes");
    value = Shape(sizes);
  }
  void operator()(const char* name, std::vector<int64_t>& value) override { list(name, Kind::kIntegers, value); }
  void operator()(const char* name, std::vector<float>& value) override { list(name, Kind::kFloats, value); }

  void finish() const {
    if (!levels_.back().members.empty())
      levels_.back().rest.fail("it has a member \"" + levels_.back().members.begin()->first +
                               "\" that this version does not know");
  }

 protected:
  void enumeration(const char* name, int64_t& index, std::span<const char* const> names) override {
    auto bytes = find(name, Kind::kEnum);
    if (!bytes) return;
    const std::string_view text = bytes->string();
    for (size_t i = 0; i < names.size(); ++i)
      if (text == names[i]) {
        index = static_cast<int64_t>(i);
        return;
      }
    bytes->fail("\"" + std::string(name) + "\" has no value \"" + std::string(text) + "\"");
  }
  void begin(const char* name) override {
    Level& level = levels_.back();
    if (level.is_list) {
      open(next_of_list(level), level.rest.what(), false);
      return;
    }
    auto bytes = find(name, Kind::kStruct);
    open(bytes ? bytes->string() : std::string_view{}, level.rest.what(), false);
  }
  void begin_list(const char* name, int64_t& count) override {
    auto bytes = find(name, Kind::kStruct);
    if (!bytes) {
      count = 0;
      open({}, levels_.back().rest.what(), true);
      return;
    }
    open(bytes->string(), bytes->what(), true);
    constexpr size_t kLeastBytes = 9;  // an empty name, a kind and an empty string
    count = static_cast<int64_t>(levels_.back().rest.count(kLeastBytes));
  }
  void end() override {
    finish();
    levels_.pop_back();
  }

 private:
  // One struct that is being read: its members by name, or the rest of a list.
  struct Level {
    ByteReader rest;
    std::map<std::string, std::pair<Kind, std::string_view>> members;
    bool is_list;
  };

  void open(std::string_view bytes, const std::string& what, bool is_list) {
    levels_.push_back({ByteReader(bytes, what), {}, is_list});
    if (is_list) return;
    Level& level = levels_.back();
    while (!level.rest.at_end()) {
      const std::string name(level.rest.string());
      const auto kind = static_cast<Kind>(level.rest.number<uint8_t>());
      level.members[name] = {kind, value_bytes(level.rest, kind)};
    }
  }

  // The bytes of one value, whatever it is.
  static std::string_view value_bytes(ByteReader& rest, Kind kind) {
    switch (kind) {
      case Kind::kBool:
        return rest.bytes(1);
      case Kind::kInteger:
      case Kind::kUnsigned:
      case Kind::kDouble:
        return rest.bytes(8);
      case Kind::kFloat:
        return rest.bytes(4);
      case Kind::kShape:
      case Kind::kIntegers:
        return rest.list_bytes(8);
      case Kind::kFloats:
        return rest.list_bytes(4);
      case Kind::kEnum:
      case Kind::kStruct:
        return rest.list_bytes(1);
    }
    rest.fail("a member has an unknown kind");
  }

  std::string_view next_of_list(Level& level) {
    level.rest.string();  // elements have no name
    if (static_cast<Kind>(level.rest.number<uint8_t>()) != Kind::kStruct) level.rest.fail("a list holds no structs");
    return level.rest.string();
  }

  // Each member is given out once.
  std::optional<ByteReader> find(const char* name, Kind kind) {
    Level& level = levels_.back();
    const auto found = level.members.find(name);
    if (found == level.members.end()) return std::nullopt;
    if (found->second.first != kind) level.rest.fail("\"" + std::string(name) + "\" is of another type");
    ByteReader bytes(found->second.second, level.rest.what());
    level.members.erase(found);
    return bytes;
  }

  template <class T>
  void number(const char* name, Kind kind, T& value) {
    if (auto bytes = find(name, kind)) value = bytes->number<T>();
  }
  template <class T>
  bool list(const char* name, Kind kind, std::vector<T>& values) {
    auto bytes = find(name, kind);
    if (!bytes) return false;
    values.resize(bytes->count(sizeof(T)));
    for (T& value : values) value = bytes->number<T>();
    return true;
  }

  std::vector<Level> levels_;
};

}  // namespace

std::string write_fields(WalkFields walk, const void* value) {
  Writer writer;
  walk(const_cast<void*>(value), writer);
  return writer.take();
}

void read_fields(std::string_view bytes, WalkFields walk, void* value, const std::string& what) {
  Reader reader(bytes, what);
  walk(value, reader);
  reader.finish();
}

}  // namespace linnet
