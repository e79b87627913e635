#include <algorithm>
#include <map>
#include "base/text.h"
#include "generation/text_grammar.h"

namespace linnet {
namespace {
using Node = TextGrammar::Node;

constexpr int kMostOpenDepth = 16, kMostDigits = 15, kMostIndent = 20;
constexpr size_t kMostReferences = 256;  // places that "$ref" names, which may refer to each other
constexpr const char* kTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

[[noreturn]] void fail_at(const std::string& where, const std::string& what) {
  fail_user("the schema", where.empty() ? "" : " at " + where, ": ", what);
}

bool has_type(const Json& value, std::string_view type) {
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "integer" && value.is_number() && !value.is_float()) || (type == "boolean" && value.is_boolean()) ||
         (type == "null" && value.is_null());
}

// Each function returns a subroutine.
class JsonGrammar {
 public:
  explicit JsonGrammar(const Json* whole = nullptr)
      : whole_(whole), space_(make_space()), string_(make_string()), integer_(make_number(false)),
        number_(make_number(true)) {
    Node simple = string_;
    for (const Node other : {number_, g_.text("true", 0), g_.text("false", 0), g_.text("null", 0)})
      simple = g_.either(simple, other);
    any_ = simple;
    for (int depth = 0; depth < kMostOpenDepth; ++depth) {
      object_ = open_object(any_), array_ = array(any_);
      any_ = g_.either(simple, g_.either(object_, array_));
    }
  }

  TextGrammar finish(Node root) {
    g_.begin_with(g_.call(space_, root));
    return std::move(g_);
  }

  Node open_object() const { return object_; }

  Node schema(const Json& json, const std::string& where) {
    if (json.is_boolean() && json.get<bool>()) return any_;
    if (!json.is_object()) fail_at(where, "it is no object");
    check_keywords(json, where);
    if (const Json* place = json.find("$ref")) return referred(*place, where + "/$ref");
    if (const Json* several = json.find("anyOf")) return any_of(*several, where + "/anyOf");
    const std::vector<std::string> types = types_of(json, where);
    if (json.contains("const")) return one_of(Json::array({json["const"]}), types, where + "/const");
    if (json.contains("enum")) return one_of(json["enum"], types, where + "/enum");
    if (types.empty()) return any_;
    Node node = typed(json, types[0], where);
    for (size_t i = 1; i < types.size(); ++i) node = g_.either(node, typed(json, types[i], where));
    return node;
  }

 private:
  static void check_keywords(const Json& json, const std::string& where) {
    constexpr std::string_view kIgnored[] = {"title", "description", "$schema", "$id", "$comment", "$defs",
        "definitions", "default", "examples", "readOnly", "writeOnly", "deprecated"};
    constexpr std::string_view kKnown[] = {
        "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref"};
    const bool chooses =
        json.contains("anyOf") || json.contains("enum") || json.contains("const") || json.contains("$ref");
    size_t choices = 0;
    for (const auto& [key, value] : json.items()) {
      if (std::ranges::find(kIgnored, key) != std::end(kIgnored)) continue;
      if (std::ranges::find(kKnown, key) == std::end(kKnown))
        fail_at(where, "the keyword \"" + key + "\" is not supported");
      choices += key != "type" || json.contains("anyOf") || json.contains("$ref");
    }
    if (chooses && choices > 1)
      fail_at(where, "beside \"anyOf\", \"enum\", \"const\" or \"$ref\" other keywords are not supported");
  }

  static std::vector<std::string> types_of(const Json& json, const std::string& where) {
    std::vector<std::string> types;
    if (const Json* given = json.find("type"))
      types = given->is_string() ? std::vector{given->text()} : given->get<std::vector<std::string>>();
    else if (json.contains("properties") || json.contains("required") || json.contains("additionalProperties"))
      types = {"object"};
    else if (json.contains("items")) types = {"array"};
    for (const std::string& type : types)
      if (std::ranges::find(kTypes, type) == std::end(kTypes)) fail_at(where, "there is no type \"" + type + "\"");
    return types;
  }

  // A schema of another place, "#/$defs/NAME".
  Node referred(const Json& place, const std::string& where) {
    const std::string path = place.is_string() ? place.text() : "";
    const auto [known, is_new] = referred_.try_emplace(path, -1);
    if (path == "#" || (!is_new && known->second < 0)) fail_at(where, "a schema that contains itself is not supported");
    if (!is_new) return known->second;
    if (referred_.size() > kMostReferences)
      fail_at(where, "it refers to more than " + std::to_string(kMostReferences) + " places");
    const std::vector<std::string_view> parts = split(path, '/');
    const Json* found = parts.size() > 1 && parts[0] == "#" ? whole_ : nullptr;
    for (size_t i = 1; i < parts.size() && found; ++i) found = found->find(parts[i]);
    if (!found) fail_at(where, "there is no " + place.dump());
    return known->second = schema(*found, path.substr(1));
  }

  Node any_of(const Json& several, const std::string& where) {
    if (!several.is_array() || several.empty()) fail_at(where, "it is not a list of schemas");
    Node node = schema(several[0], where + "/0");
    for (size_t i = 1; i < several.size(); ++i)
      node = g_.either(node, schema(several[i], where + "/" + std::to_string(i)));
    return node;
  }

  Node one_of(const Json& values, const std::vector<std::string>& types, const std::string& where) {
    Node node = -1;
    for (const Json& value : values) {
      if (!types.empty() && std::ranges::none_of(types, [&](const auto& type) { return has_type(value, type); }))
        continue;
      const Node text = g_.text(value.dump(), TextGrammar::kReturn);
      node = node < 0 ? text : g_.either(node, text);
    }
    if (node < 0) fail_at(where, "no value fits");
    return node;
  }

  Node typed(const Json& json, const std::string& type, const std::string& where) {
    if (type == "string") return string_;
    if (type == "number") return number_;
    if (type == "integer") return integer_;
    if (type == "boolean") return g_.either(g_.text("true", 0), g_.text("false", 0));
    if (type == "null") return g_.text("null", 0);
    if (type == "array") return json.contains("items") ? array(schema(json["items"], where + "/items")) : array_;
    return object(json, where);
  }

  Node object(const Json& json, const std::string& where) {
    const Json none = Json::object();
    const Json* given = json.find("properties");
    const Json& properties = given ? *given : none;
    if (!properties.is_object()) fail_at(where + "/properties", "it is no object");
    std::vector<std::string> required;
    if (const Json* names = json.find("required")) required = names->get<std::vector<std::string>>();
    for (const std::string& name : required)
      if (!properties.contains(name)) fail_at(where + "/required", "there is no property " + Json(name).dump());
    const Json* more = json.find("additionalProperties");
    if (more && more->is_object() && properties.empty())
      return open_object(schema(*more, where + "/additionalProperties"));
    if (more && !more->is_boolean())
      fail_at(where, "\"additionalProperties\" is true or false, or without properties a schema");
    if (properties.empty() && !(more && !more->get<bool>())) return object_;
    // From the last property to the first: continuations if none was written yet, and if some were.
    Node first = g_.text("}", 0), after = first;
    for (size_t i = properties.size(); i-- > 0;) {
      const auto& [name, value] = properties.items()[i];
      const Node rule = member(g_.text(Json(name).dump(), 0), schema(value, where + "/properties/" + name));
      const bool optional = std::ranges::find(required, name) == required.end();
      const Node rest = g_.call(space_, after);
      const Node begun = g_.call(rule, rest), added = g_.text(",", g_.call(space_, begun));
      first = optional ? g_.either(begun, first) : begun;
      after = optional ? g_.either(added, after) : added;
    }
    return g_.text("{", g_.call(space_, first));
  }

  Node member(Node key, Node value) { return g_.call(key, g_.call(space_, g_.text(":", g_.call(space_, value)))); }

  Node open_object(Node value) { return list("{", member(string_, value), "}"); }
  Node array(Node value) { return list("[", value, "]"); }

  Node list(const char* open, Node item, const char* close) {
    const Node end = g_.text(close, 0), items = g_.later();
    const Node more = g_.text(",", g_.call(space_, items));
    g_.become(items, g_.call(item, g_.call(space_, g_.either(more, end))));
    return g_.text(open, g_.call(space_, g_.either(items, end)));
  }

  Node make_space() {
    Node indent = 0;
    for (int i = 0; i < kMostIndent; ++i) indent = g_.either(0, g_.text(" ", indent));
    return g_.either(0, g_.either(g_.text(" ", 0), g_.text("\n", indent)));
  }

  Node make_string() {
    const Node more = g_.later();
    const std::pair<uint8_t, uint8_t> kNext{0x80, 0xBF};  // later bytes of a character in UTF-8
    const auto hex = [&](Node next) {
      return g_.either(g_.range('0', '9', next), g_.either(g_.range('a', 'f', next), g_.range('A', 'F', next)));
    };
    const Node two = hex(hex(more)), three = hex(two);
    Node escape = g_.text("\"", more);
    for (const char* c : {"\\", "/", "b", "f", "n", "r", "t"}) escape = g_.either(escape, g_.text(c, more));
    // \uXXXX of a whole character: no surrogates, D800 to DFFF.
    for (const auto& [low, high] : {std::pair{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}})
      escape = g_.either(escape, g_.text("u", g_.range(static_cast<uint8_t>(low), static_cast<uint8_t>(high), three)));
    for (const char* d : {"ud", "uD"}) escape = g_.either(escape, g_.text(d, g_.range('0', '7', two)));
    Node node = g_.either(g_.text("\"", 0), g_.text("\\", escape));
    for (const auto& bytes : {TextGrammar::Ranges{{0x20, 0x21}}, TextGrammar::Ranges{{0x23, 0x5B}},
             TextGrammar::Ranges{{0x5D, 0x7E}}, TextGrammar::Ranges{{0xC2, 0xDF}, kNext},
             TextGrammar::Ranges{{0xE0, 0xE0}, {0xA0, 0xBF}, kNext}, TextGrammar::Ranges{{0xE1, 0xEC}, kNext, kNext},
             TextGrammar::Ranges{{0xED, 0xED}, {0x80, 0x9F}, kNext}, TextGrammar::Ranges{{0xEE, 0xEF}, kNext, kNext},
             TextGrammar::Ranges{{0xF0, 0xF0}, {0x90, 0xBF}, kNext, kNext},
             TextGrammar::Ranges{{0xF1, 0xF3}, kNext, kNext, kNext},
             TextGrammar::Ranges{{0xF4, 0xF4}, {0x80, 0x8F}, kNext, kNext}})
      node = g_.either(node, g_.ranges(bytes, more));
    g_.become(more, node);
    return g_.text("\"", more);
  }

  Node digits(int least, int most, Node next) {
    Node node = next;
    for (int i = most; i-- > 0;) {
      node = g_.range('0', '9', node);
      if (i >= least) node = g_.either(next, node);
    }
    return node;
  }

  Node make_number(bool fraction) {
    Node end = 0;
    if (fraction) {
      const Node power = digits(1, 2, 0), sign = g_.either(g_.text("+", power), g_.text("-", power));
      const Node signed_power = g_.either(power, sign);
      end = g_.either(0, g_.either(g_.text("e", signed_power), g_.text("E", signed_power)));
      end = g_.either(end, g_.text(".", digits(1, kMostDigits, end)));
    }
    const Node whole = g_.either(g_.text("0", end), g_.range('1', '9', digits(0, kMostDigits - 1, end)));
    return g_.either(whole, g_.text("-", whole));
  }

  const Json* const whole_;               // where "$ref" looks
  std::map<std::string, Node> referred_;  // by place; -1: not finished
  TextGrammar g_;
  const Node space_, string_, integer_, number_;
  Node any_ = 0, object_ = 0, array_ = 0;
};
}  // namespace

TextGrammar json_object_grammar() {
  JsonGrammar grammar;
  return grammar.finish(grammar.open_object());
}

TextGrammar json_schema_grammar(const Json& schema) {
  JsonGrammar grammar(&schema);
  return grammar.finish(grammar.schema(schema, ""));
}
}  // namespace linnet
