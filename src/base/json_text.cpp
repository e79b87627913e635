#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/json_object.h"
#include "base/one_line.h"

namespace linnet {

// Builds the tree from the parser's events. Containers that are open do not move: only the innermost one grows.
class JsonBuilder {
 public:
  explicit JsonBuilder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(int64_t value) { return add(Json(value)); }
  bool number_unsigned(uint64_t value) { return add(Json(value)); }
  bool number_float(double value, const std::string&) { return add(Json(value)); }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // no text has it
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& key) {
    Json::Object& object = open_.back()->members();
    const size_t found = object.position(key, limits_.steps);
    if (found == Json::Object::kNone) {
      slot_ = &object.add(std::move(key), {});
    } else {
      if (limits_.refuses_duplicates) throw JsonError("names " + shown(Json(key)) + " twice");
      slot_ = &(object.members[found].value = Json());
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    std::string what = error.what();
    if (const size_t at = what.find("] "); at != std::string::npos) what = what.substr(at + 2);
    constexpr size_t kLongest = 300;  // it repeats what was read last
    if (what.size() > kLongest) what = what.substr(0, kLongest) + "...";
    for (char& c : what)
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    throw JsonError(one_line("is not JSON: " + what));
  }

 private:
  bool add(Json value) { return insert(std::move(value)) != nullptr; }

  Json* insert(Json value) {
    if (++values_ > limits_.values) throw JsonError("has more than " + std::to_string(limits_.values) + " values");
    if (limits_.steps) ++*limits_.steps;
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*slot_ = std::move(value));
    Json::List& list = std::get<Json::List>(open_.back()->value_);
    return &list.emplace_back(std::move(value));
  }

  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      throw JsonError("nests deeper than " + std::to_string(limits_.depth) + " levels");
    open_.push_back(insert(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  // the value of the key that was read last
  size_t values_ = 0;
};

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) throw JsonError("has more than " + std::to_string(limits.bytes) + " bytes of JSON");
  JsonBuilder builder(limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json Json::parse(std::string_view text, const std::string& subject, const JsonLimits& limits) {
  try {
    return parse(text, limits);
  } catch (const JsonError& error) {
    throw JsonError(one_line(subject + " " + error.what()));
  }
}

Json Json::parse_or_null(std::string_view text, const JsonLimits& limits) {
  try {
    return parse(text, limits);
  } catch (const JsonError&) {
    return {};
  }
}

namespace {

enum class Strings { kReplaced, kAscii, kUtf8 };  // what becomes of bytes that are not ASCII or not UTF-8

class Writer {
 public:
  Writer(int indent, Strings strings) : indent_(indent), strings_(strings) {}

  void write(const Json& json) {
    if (json.is_object())
      write_all(json.items(), '{', '}', [&](const Json::Member& member) {
        write(member.key);
        out_ += indent_ < 0 ? ":" : ": ";
        write(member.value);
      });
    else if (json.is_array())
      write_all(json, '[', ']', [&](const Json& element) { write(element); });
    else if (json.is_string())
      write(json.text());
    else if (json.is_float())
      write(json.get<double>());
    else if (json.is_boolean())
      out_ += json.get<bool>() ? "true" : "false";
    else if (json.is_null())
      out_ += "null";
    else
      out_ += json.is_natural() ? std::to_string(json.get<uint64_t>()) : std::to_string(json.get<int64_t>());
  }
  std::string take() { return std::move(out_); }

 private:
  template <class Range, class WriteOne>
  void write_all(const Range& range, char begin, char end, const WriteOne& write_one) {
    out_ += begin;
    ++depth_;
    const char* comma = "";
    for (const auto& one : range) {
      out_ += comma;
      begin_line();
      write_one(one);
      comma = ",";
    }
    --depth_;
    if (*comma) begin_line();
    out_ += end;
  }
  void begin_line() {
    if (indent_ >= 0) (out_ += '\n').append(static_cast<size_t>(indent_ * depth_), ' ');
  }

  void write(double number) {
    if (!std::isfinite(number)) return void(out_ += "null");  // JSON has no other word for it
    char digits[64];
    out_.append(digits, nlohmann::detail::to_chars(digits, digits + sizeof digits, number));
  }

  void write(const std::string& text) {
    const auto is_plain = [](unsigned char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
    if (std::ranges::all_of(text, is_plain)) return void(((out_ += '"') += text) += '"');
    using Handler = nlohmann::json::error_handler_t;
    try {
      out_ += nlohmann::json(text).dump(-1, ' ', strings_ == Strings::kAscii,
                                        strings_ == Strings::kUtf8 ? Handler::strict : Handler::replace);
    } catch (const nlohmann::json::exception&) {
      throw JsonError("is not valid UTF-8");
    }
  }

  const int indent_;
  const Strings strings_;
  int depth_ = 0;
  std::string out_;
};

std::string written(const Json& json, int indent, Strings strings) {
  Writer writer(indent, strings);
  writer.write(json);
  return writer.take();
}

}  // namespace

std::string Json::dump(int indent) const { return written(*this, indent, Strings::kReplaced); }
std::string Json::dump_ascii() const { return written(*this, -1, Strings::kAscii); }
std::string Json::dump_if_utf8() const { return written(*this, -1, Strings::kUtf8); }

}  // namespace linnet
