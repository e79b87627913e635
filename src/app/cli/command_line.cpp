#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include "app/cli/commands.h"
#include "base/files.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/config_keys.h"
#include "config/hints.h"
#include "models/nn/weight_quantization.h"
#include "tasks/generation/text_request.h"

namespace linnet {
namespace {
template <class T> struct NumberOf { using Type = T; };
template <class T> struct NumberOf<std::optional<T>> { using Type = T; };

// Rejects values that CLI11 accepts and commands cannot use: "nan" and "inf"; numbers too large, which CLI11 clamps;
// and empty values, such as of an unset shell variable, unless any text is allowed.
template <class Value> std::string value_problem(const std::string& text, std::string_view type) {
  if constexpr (std::is_integral_v<Value>) {
    Value value = 0;
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) return text + " is beyond what a number of this kind can be";
    return error != std::errc() || end != text.data() + text.size() ? text + " is not a whole number" : "";
  } else if constexpr (std::is_floating_point_v<Value>) {
    double value = 0;
    return CLI::detail::lexical_cast(text, value) && !std::isfinite(value) ? text + " is not a finite number" : "";
  } else {
    return text.empty() && !type.empty() && type != "TEXT" ? "the value is empty" : "";
  }
}

// The program and its commands on the command line, as far as known.
std::vector<const CLI::App*> parsed_commands(const CLI::App& app) {
  std::vector<const CLI::App*> commands{&app};
  while (!commands.back()->get_subcommands().empty()) commands.push_back(commands.back()->get_subcommands().front());
  return commands;
}

std::vector<std::string> parsed_path(const CLI::App& app) {
  std::vector<std::string> path = mapped(parsed_commands(app), &CLI::App::get_name);
  path.erase(path.begin());
  return path;
}

// The first option whose value is another option's name, such as --data in `--data --run x`; "" if there is none.
// Users who mean that value write --data=--run.
std::string option_without_value(const CLI::App& app, int argc, char** argv) {
  const CLI::App& command = *parsed_commands(app).back();
  const auto option = [&](const std::string& word) {
    return word.starts_with('-') ? command.get_option_no_throw(word) : nullptr;
  };
  for (int i = 1; i + 1 < argc; ++i)
    if (const CLI::Option* taker = option(argv[i]); taker && taker->get_items_expected_min() > 0 && option(argv[i + 1]))
      return argv[i];
  return "";
}

// CLI11 lists everything unexpected, values included; most often one option is misspelled.
std::string unexpected_text(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<std::string> extra = app.remaining(true);
  const auto is_extra = [&](const char* word) { return contains(extra, word); };
  const auto is_option = [&](const char* word) { return word[0] == '-' && word[1] != '\0' && is_extra(word); };
  char** const option = std::find_if(argv + 1, argv + argc, is_option);
  if (option == argv + argc) {
    char** const word = std::find_if(argv + 1, argv + argc, is_extra);
    if (word == argv + argc) return error.what();
    const std::string text = std::string("there is nothing to do with '") + *word + "'";
    if (word - argv >= 3 && std::string_view(word[-2]) == "--set")
      return text + "; --set takes KEY=VALUE, without blanks";
    if (file_exists(*word) && parsed_commands(app).back()->get_option_no_throw("--data"))
      return text + "; --data " + *word + " takes data from there";
    if (file_exists(*word) || std::string_view(*word).find(' ') != std::string_view::npos)
      return text + "; texts come from standard input: < FILE, or echo TEXT |";
    return text;
  }
  std::vector<std::string> names;
  for (const CLI::App* command : parsed_commands(app))
    for (const CLI::Option* known : command->get_options())
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  const std::string given = std::string(*option).substr(0, std::string_view(*option).find('='));
  const std::string problem = "there is no option '" + given + "'";
  std::string key = given, no_key;
  key.erase(0, key.find_first_not_of('-'));
  std::ranges::replace(key, '-', '_');
  if (contains(names, "--set") && !find_keys("", key, no_key).empty())
    return problem + "; `--set " + key + "=VALUE` sets that key";
  return problem + did_you_mean(given, names, "", "");
}

// CLI11 names what is missing; this adds its help text.
std::string required_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = parsed_commands(app).back();
  const CLI::Option *resume = command->get_option_no_throw("--resume"), *run = command->get_option_no_throw("--run");
  const bool resumes = resume && run && resume->count() > 0 && run->count() > 0;
  for (const CLI::Option* option : command->get_options())
    if (option->get_required() && option->count() == 0) {
      return upper_ascii(option->get_name()) + " is missing" +
             (resumes
                     ? "; `linnet " + command->get_name() + " " + run->results()[0] + " --resume` goes on with that run"
                     : ": " + option->get_description());
    }
  return command->get_subcommands({}).empty() ? error.what() : "a command is missing";
}

// CLI11 only reports a missing command, or takes the next word for it; most often it is misspelled.
std::string problem_text(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<std::string> names = mapped(app.get_subcommands({}), &CLI::App::get_name);
  if (argc >= 2 && argv[1][0] != '-' && !contains(names, argv[1]))
    return std::string("there is no command '") + argv[1] + "'" + did_you_mean(argv[1], names, "", "");
  if (const std::string option = option_without_value(app, argc, argv); !option.empty())
    return option + " needs a value";
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) return unexpected_text(app, error, argc, argv);
  if (dynamic_cast<const CLI::RequiredError*>(&error) && !app.get_subcommands().empty())
    return required_text(app, error);
  const std::string text = error.what(), option = text.substr(0, text.find(": "));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) && text.find(" required ") != text.npos)
    return option + (text.ends_with(" missing") ? " needs a value" : " is given more than once");
  return argc < 2 || app.remaining(true).empty() ? error.what() : unexpected_text(app, error, argc, argv);
}
}  // namespace

template <class T> Command& Command::take(const char* name, T& value, const char* help, const ValueRules& rules) {
  using Value = typename NumberOf<T>::Type;
  constexpr bool kIsNumber = std::is_arithmetic_v<Value>, kIsList = std::is_same_v<T, std::vector<std::string>>;
  CLI::Option* option = app_->add_option(name, value, help);
  option->required(rules.required);
  if (*rules.type) option->type_name(rules.type);
  option->check([type = rules.type](const std::string& given) { return value_problem<Value>(given, type); });
  if constexpr (kIsNumber) {
    if (rules.least && rules.most)
      option->check(CLI::Range(static_cast<Value>(*rules.least), static_cast<Value>(*rules.most)));
  } else if (!rules.choices.empty()) {
    option->transform(CLI::IsMember(rules.choices, CLI::ignore_case));
  }
  if (kIsList && name[0] == '-') option->take_all()->expected(1)->allow_extra_args(false);
  std::string text = help;
  if constexpr (std::is_arithmetic_v<T>)
    if (rules.show_default) text += " (default " + CLI::detail::to_string(value) + ")";
  const std::string_view names = name;  // the last one is shown
  described_->arguments.push_back({.name = std::string(names.substr(names.rfind(',') + 1)),
      .help = text,
      .type = *rules.type ? rules.type
              : kIsNumber ? "N"
                          : "TEXT",
      .values = rules.choices.empty() ? rules.suggestions : rules.choices,
      .is_required = rules.required,
      .is_list = kIsList});
  return *this;
}
template Command& Command::take(const char*, std::string&, const char*, const ValueRules&);
template Command& Command::take(const char*, int&, const char*, const ValueRules&);
template Command& Command::take(const char*, int64_t&, const char*, const ValueRules&);
template Command& Command::take(const char*, uint64_t&, const char*, const ValueRules&);
template Command& Command::take(const char*, double&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::optional<std::string>&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::optional<int64_t>&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::optional<double>&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::vector<std::string>&, const char*, const ValueRules&);

Command& Command::flag(const char* name, bool& value, const char* help) {
  app_->add_flag(name, value, help);
  described_->arguments.push_back({.name = name, .help = help, .is_flag = true});
  return *this;
}

Command& Command::take_device(std::string& value, const char* help) {
  return take("--device", value, help, {.type = "NAME", .suggestions = {"cpu", "cuda", "cuda:0", "cuda:1"}});
}
Command& Command::take_isa(std::string& value) {
  return take("--isa", value, "instruction set of the kernels (see `linnet info`)", {.type = "NAME"});
}

Command& Command::take_quantize(std::string& word, std::vector<std::string>& keep, bool packs) {
  std::vector<std::string> words = quantization_words();
  if (!packs) words.emplace_back("static");
  return take("--quantize", word,
      packs ? "weights of 16, 8 or 4 bits: bf16, int8 (activations too, by scales found for each row), "
              "int8-weights or int4-weights (for decoding); default: as the folder has them"
            : "weights of 16, 8 or 4 bits: bf16, int8 (activations too, by scales found for each row), static "
              "(by the scales of `linnet quantize`), int8-weights or int4-weights (for decoding); default: "
              "static for a model that has such scales, none for others",
      {.choices = words})
      .take("--keep", keep, "parameters that stay in fp32 (* stands for any characters); may be given several times",
          {.type = "NAME"});
}

Command& Command::take_draft(ModelLoad& load) {
  return take("--draft", load.draft,
      "a smaller model of the same tokenizer that guesses tokens, which the model checks several in one step: "
      "the same texts, sooner",
      {.type = "MODEL"})
      .take("--draft-tokens", load.draft_tokens, "tokens that the draft model guesses at once (default 4)",
          {.least = 1, .most = 64});
}

Command& Command::take_adapters(std::vector<std::string>& words, bool by_request) {
  return take("--adapter", words,
      by_request ? "LoRA adapters of another folder, beside the weights of a model folder; of several a "
                   "request in JSON chooses by \"adapter\": NAME"
                 : "LoRA adapters of another folder (PEFT's), beside the weights of a model folder",
      {.type = by_request ? "[NAME=]DIR" : "DIR"});
}

Command& Command::take_sampling(TextGenerationOptions& options) {
  return take("--temperature", options.temperature,
      "above 1 bolder, below 1 more careful, 0: always the likeliest token (default 1)")
      .take("--top-k", options.top_k, "only among the K likeliest tokens; 0: all (default)")
      .take("--top-p", options.top_p, "only among the likeliest tokens whose probabilities reach P (default 1: all)")
      .take("--min-p", options.min_p, "only tokens at least P times as likely as the likeliest (default 0: all)")
      .take("--repetition-penalty", options.repetition_penalty, "above 1: what was there already is less likely")
      .take("--frequency-penalty", options.frequency_penalty, "above 0: less likely each time that it was written")
      .take("--presence-penalty", options.presence_penalty, "above 0: less likely once it was written");
}

Command& Command::take_languages(std::string& source, std::string& target) {
  take("--source-language", source,
      "language of the source, of a model of many languages (mBART, M2M100, NLLB), as its tokenizer spells it: "
      "eng_Latn, en_XX, en (default: the folder's)");
  return take("--target-language", target, "language to translate to (default: the folder's)");
}

Command Command::subcommand(const char* name, const char* help) {
  app_->require_subcommand(1);
  CommandDescription& described = described_->subcommands.emplace_back();
  described.name = name;
  described.help = help;
  return {*app_->add_subcommand(name, help), *chosen_, described};
}

void Command::does(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

std::vector<int64_t> positive_numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  for (const std::string_view part : split(text, ',')) {
    const auto number = parse_number<int64_t>(part);
    if (!number || *number < 1) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

int run_command_line(int argc, char** argv, const std::function<void(Command&)>& declare) {
  CommandDescription described;
  described.name = "linnet";
  described.help =
      "trains transformers and convolutional networks on CPUs and NVIDIA GPUs: fast, in little memory, from one "
      "program";
  CLI::App app(described.help, described.name);
  app.set_version_flag("--version", build_version());
  Action chosen;
  Command root(app, chosen, described);
  declare(root);
  add_reference_commands(root, described);
  if (argc < 2) {
    std::fprintf(stderr, "usage: linnet COMMAND ...; `linnet help` lists the commands\n");
    return 2;
  }
  if (const std::string first = argv[1]; argc == 2 && (first == "version" || first == "-v" || first == "-V")) {
    std::printf("%s\n", build_version().c_str());
    return 0;
  }
  try {
    app.parse(argc, argv);
    if (!option_without_value(app, argc, argv).empty()) throw CLI::ArgumentMismatch("");
  } catch (const CLI::CallForHelp&) {
    std::fputs(help_page(described, parsed_path(app)).c_str(), stdout);  // instead of CLI11's
    return 0;
  } catch (const CLI::Success& done) {
    const int code = app.exit(done);  // --version
    std::cout.flush();
    return code;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "linnet: %s (see `linnet help%s`)\n", problem_text(app, error, argc, argv).c_str(),
        joined(parsed_path(app), "", [](const std::string& name) { return " " + name; }).c_str());
    return 2;
  }
  return chosen();
}
}  // namespace linnet
