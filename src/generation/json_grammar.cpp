#include <algorithm>
#include <map>
#include <set>
#include "base/functions.h"
#include "base/text.h"
#include "generation/json_texts.h"

namespace linnet {
namespace {
using Node = TextGrammar::Node;

constexpr int kMostOpenDepth = 16, kMostIndent = 20;
constexpr const char* kTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

// Keywords that say something of values of one type alone.
struct OfType {
  std::string_view keyword;
  const char* type;
};
constexpr OfType kOfTypes[] = {{"properties", "object"}, {"required", "object"}, {"additionalProperties", "object"},
    {"items", "array"}, {"prefixItems", "array"}, {"minItems", "array"}, {"maxItems", "array"}, {"minLength", "string"},
    {"maxLength", "string"}, {"pattern", "string"}, {"format", "string"}, {"minimum", "number"}, {"maximum", "number"},
    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};
constexpr std::string_view kChoices[] = {"anyOf", "oneOf", "allOf", "enum", "const", "$ref"};
constexpr std::string_view kIgnored[] = {"title", "description", "$schema", "$id", "$comment", "$defs", "definitions",
    "default", "examples", "readOnly", "writeOnly", "deprecated", "discriminator"};

// The pattern of strings of a format, RFC 3339 and others; null: Linnet knows none.
const std::string* pattern_of_format(const std::string& name) {
  static const std::string kDay =
      "(02-(0[1-9]|1\\d|2[0-8])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
      "(0[13578]|1[02])-(0[1-9]|[12]\\d|3[01]))";
  static const std::string kDate = "\\d{4}-" + kDay, kByte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)",
                           kHour = "([01]\\d|2[0-3]):[0-5]\\d",
                           kTime = kHour + ":[0-5]\\d(\\.\\d{1,6})?(Z|[+-]" + kHour + ")";
  static const std::map<std::string, std::string> kPatterns{{"date", "^" + kDate + "$"}, {"time", "^" + kTime + "$"},
      {"date-time", "^" + kDate + "T" + kTime + "$"}, {"ipv4", "^" + kByte + "(\\." + kByte + "){3}$"},
      {"uuid", "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"}};
  return find_value(kPatterns, name);
}

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
      : whole_(whole), space_(make_space()), string_(g_.text("\"", json_characters(g_, g_.text("\"", 0)))),
        integer_(json_number(g_, true, {}, {})), number_(json_number(g_, false, {}, {})) {
    const Node simple = g_.either({string_, number_, g_.text("true", 0), g_.text("false", 0), g_.text("null", 0)});
    any_ = simple;
    for (int depth = 0; depth < kMostOpenDepth; ++depth) {
      object_ = open_object(any_), array_ = array(any_);
      any_ = g_.either(simple, g_.either(object_, array_));
    }
  }

  TextGrammar finish(Node root) {
    g_.begin_with(g_.call(space_, root));
    while (!unmade_.empty()) {  // makes the schemas of other places one after the other, not in each other
      const auto [place, node, where] = std::move(unmade_.back());
      unmade_.pop_back();
      g_.become(node, schema(*place, where));
    }
    referred_["#"] = root;  // the whole schema, referred to or not
    size_t budget = TextGrammar::kMost;
    for (const auto& [place, node] : referred_)
      if (!has_texts(node, budget)) fail_at(place.substr(1), "no text fits, since it refers to itself alone");
    return std::move(g_);
  }

  Node open_object() const { return object_; }

  Node schema(const Json& json, const std::string& where) {
    if (json.is_boolean() && json.get<bool>()) return any_;
    if (!json.is_object()) fail_at(where, "it is no object");
    check_keywords(json, where);
    if (const Json* place = json.find("$ref")) return referred(*place, where + "/$ref");
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (const Json* several = json.find(key)) return any_of(*several, where + "/" + key, key);
    const std::vector<std::string> types = types_of(json, where);
    if (json.contains("const")) return one_of(Json::array({json["const"]}), types, where + "/const");
    if (json.contains("enum")) return one_of(json["enum"], types, where + "/enum");
    if (types.empty()) return any_;
    return g_.either(mapped(types, [&](const std::string& type) { return typed(json, type, where); }));
  }

 private:
  // Whether a byte can follow, as far as the budget of nodes looked at goes.
  bool has_texts(Node root, size_t& budget) const {
    std::vector<Node> open{root};
    std::set<Node> seen{root};
    while (!open.empty()) {
      const TextGrammar::Step& step = g_[open.back()];
      open.pop_back();
      if (step.kind == TextGrammar::Kind::kRange || budget == 0) return true;
      --budget;
      if (step.kind == TextGrammar::Kind::kReturn) continue;
      for (const Node next : {step.other, step.kind == TextGrammar::Kind::kCall ? step.other : step.next})
        if (seen.insert(next).second) open.push_back(next);
    }
    return false;
  }

  static void check_keywords(const Json& json, const std::string& where) {
    const bool lists_values = json.contains("enum") || json.contains("const");
    size_t choices = 0, others = 0;
    for (const auto& [key, value] : json.items()) {
      if (contains(kIgnored, key)) continue;
      const bool is_type = key == "type", chooses = contains(kChoices, key);
      if (!is_type && !chooses && !find_item(kOfTypes, key, &OfType::keyword))
        fail_at(where, "the keyword \"" + key + "\" is not supported");
      if (chooses) ++choices;
      else if (!is_type || !lists_values) ++others;
    }
    if (choices > 1 || (choices > 0 && others > 0))
      fail_at(where,
          "beside \"anyOf\", \"oneOf\", \"allOf\", \"enum\", \"const\" or \"$ref\" other keywords are not supported");
  }

  static std::vector<std::string> types_of(const Json& json, const std::string& where) {
    std::vector<std::string> types;
    if (const Json* given = json.find("type"))
      types = given->is_string() ? std::vector{given->text()} : given->get<std::vector<std::string>>();
    else
      for (const auto& [key, type] : kOfTypes)
        if (json.contains(key) && !contains(types, type)) types.emplace_back(type);
    for (const std::string& type : types)
      if (!contains(kTypes, type)) fail_at(where, "there is no type \"" + type + "\"");
    return types;
  }

  // A schema of another place, "#/$defs/NAME", which may be one that this is part of.
  Node referred(const Json& place, const std::string& where) {
    const std::string path = place.is_string() ? place.text() : "";
    const auto [known, is_new] = referred_.try_emplace(path, 0);
    if (!is_new) return known->second;
    const std::vector<std::string_view> parts = split(path, '/');
    const Json* found = parts[0] == "#" ? whole_ : nullptr;
    for (size_t i = 1; i < parts.size() && found; ++i) found = found->find(parts[i]);
    if (!found) fail_at(where, "there is no " + place.dump());
    known->second = g_.later();
    unmade_.push_back({found, known->second, path.substr(1)});
    return known->second;
  }

  Node any_of(const Json& several, const std::string& where, std::string_view key) {
    if (!several.is_array() || several.empty()) fail_at(where, "it is not a list of schemas");
    if (key == "allOf" && several.size() > 1) fail_at(where, "several schemas at once are not supported");
    return g_.either(
        mapped(several.size(), [&](size_t i) { return schema(several[i], where + "/" + std::to_string(i)); }));
  }

  Node one_of(const Json& values, const std::vector<std::string>& types, const std::string& where) {
    std::vector<Node> texts;
    for (const Json& value : values)
      if (types.empty() || std::ranges::any_of(types, [&](const auto& type) { return has_type(value, type); }))
        texts.push_back(g_.text(value.dump(), TextGrammar::kReturn));
    if (texts.empty()) fail_at(where, "no value fits");
    return g_.either(texts);
  }

  Node typed(const Json& json, const std::string& type, const std::string& where) {
    if (type == "string") return string(json, where);
    if (type == "number" || type == "integer") return number(json, type == "integer", where);
    if (type == "boolean") return g_.either(g_.text("true", 0), g_.text("false", 0));
    if (type == "null") return g_.text("null", 0);
    return type == "array" ? array(json, where) : object(json, where);
  }

  static std::optional<size_t> count_of(const Json& json, const char* key, const std::string& where) {
    const Json* given = json.find(key);
    if (!given) return {};
    if (!given->is_natural()) fail_at(where + "/" + key, "it is no count");
    return given->get<uint64_t>();
  }

  Node string(const Json& json, const std::string& where) {
    const std::optional<size_t> least = count_of(json, "minLength", where), most = count_of(json, "maxLength", where);
    const Json *given = json.find("pattern"), *format = json.find("format");
    const std::string* pattern = given ? &given->text() : format ? pattern_of_format(format->text()) : nullptr;
    const Node end = g_.text("\"", 0);
    if (pattern && (least || most)) fail_at(where, "a pattern or format beside a length is not supported");
    if (given && format && pattern_of_format(format->text()))
      fail_at(where, "a pattern beside a format is not supported");
    if (pattern) return g_.text("\"", g_.call(matching(*pattern, where), end));
    if (!least && !most) return string_;
    if (most && least > most) fail_at(where, "\"minLength\" is above \"maxLength\"");
    const Node one = json_character(g_, 0);
    Node node = most ? end : json_characters(g_, end);
    for (size_t i = most.value_or(least.value_or(0)); i-- > 0;) {
      node = g_.call(one, node);
      if (i >= least.value_or(0)) node = g_.either(end, node);
    }
    return g_.text("\"", node);
  }

  Node matching(const std::string& pattern, const std::string& where) {
    try {
      return json_pattern(g_, pattern);
    } catch (const Error& error) {
      fail_at(where, error.what());
    }
  }

  Node array(const Json& json, const std::string& where) {
    const std::optional<size_t> least = count_of(json, "minItems", where);
    std::optional<size_t> most = count_of(json, "maxItems", where);
    std::vector<Node> first;
    if (const Json* given = json.find("prefixItems")) {
      if (!given->is_array()) fail_at(where + "/prefixItems", "it is no list of schemas");
      for (const Json& item : *given)
        first.push_back(schema(item, where + "/prefixItems/" + std::to_string(first.size())));
    }
    const Json* items = json.find("items");
    if (items && items->is_boolean() && !items->get<bool>()) most = std::min(most.value_or(first.size()), first.size());
    if (most && least > most) fail_at(where, "\"minItems\" is above \"maxItems\"");
    const Node others = items && !(most && *most <= first.size()) ? schema(*items, where + "/items") : any_;
    return list("[", first, others, least.value_or(0), most, "]");
  }

  Node number(const Json& json, bool whole, const std::string& where) {
    const auto limit = [&](const char* key, const char* open_key) {
      std::optional<NumberLimit> result;
      for (const char* name : {key, open_key})
        if (const Json* given = json.find(name)) {
          if (!given->is_number() || result) fail_at(where + "/" + name, "it is no number, or the second limit");
          result = {given->get<double>(), name == open_key};
        }
      return result;
    };
    const auto least = limit("minimum", "exclusiveMinimum"), most = limit("maximum", "exclusiveMaximum");
    if (!least && !most) return whole ? integer_ : number_;
    const Node node = json_number(g_, whole, least, most);
    if (node < 0) fail_at(where, "no number is within its limits");
    return node;
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
      const bool optional = !contains(required, name);
      const Node rest = g_.call(space_, after);
      const Node begun = g_.call(rule, rest), added = g_.text(",", g_.call(space_, begun));
      first = optional ? g_.either(begun, first) : begun;
      after = optional ? g_.either(added, after) : added;
    }
    return g_.text("{", g_.call(space_, first));
  }

  Node member(Node key, Node value) { return g_.call(key, g_.call(space_, g_.text(":", g_.call(space_, value)))); }

  Node open_object(Node value) { return list("{", {}, member(string_, value), 0, {}, "}"); }
  Node array(Node value) { return list("[", {}, value, 0, {}, "]"); }

  // Items of the rules in `first`, then of the rule `item`; at least and at most so many.
  Node list(const char* open, const std::vector<Node>& first, Node item, size_t least, std::optional<size_t> most,
      const char* close) {
    const Node end = g_.text(close, 0);
    Node after = end, begun = end;  // texts after an item, and from one on
    if (!most) {
      const Node items = g_.later();
      after = g_.either(g_.text(",", g_.call(space_, items)), end);
      g_.become(items, begun = g_.call(item, g_.call(space_, after)));
    }
    for (size_t i = most.value_or(std::max(least, first.size())); i-- > 0;) {
      begun = g_.call(i < first.size() ? first[i] : item, g_.call(space_, after));
      after = g_.text(",", g_.call(space_, begun));
      if (i >= least) after = g_.either(after, end);
    }
    return g_.text(open, g_.call(space_, least == 0 ? g_.either(begun, end) : begun));
  }

  Node make_space() {
    Node indent = 0;
    for (int i = 0; i < kMostIndent; ++i) indent = g_.either(0, g_.text(" ", indent));
    return g_.either(0, g_.either(g_.text(" ", 0), g_.text("\n", indent)));
  }

  const Json* const whole_;               // where "$ref" looks
  std::map<std::string, Node> referred_;  // by place
  struct Referred {
    const Json* place;
    Node node;
    std::string where;
  };
  std::vector<Referred> unmade_;  // of them
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
