// Implements `sluice store`: creates, lists, watches, saves and deletes the models that reducers keep.
#include <memory>
#include <string>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "cli/options/pool_flags.h"
#include "config/file_contents.h"
#include "config/json.h"
#include "config/pool.h"
#include "gpu_client/store/store_client.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using store_client::StoreClient;

struct StoreFlags {
  PoolFlags pool;
  std::string name;  // of the model
  std::string file;
  std::string specification;
  bool resumable = false;
  bool any = false;
  uint64_t from = 0;
  uint32_t count = 0;
};

constexpr size_t kMaxSpecification = 16 * kMiB;

bench::ExitCode exit_code_of(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
    case Errc::kMismatch: return bench::kExitConfig;
    case Errc::kTimeout:
    case Errc::kReset:
    case Errc::kReducerLost:
    case Errc::kUnauthenticated:
    case Errc::kUnsupported: return bench::kExitUnavailable;
    default: return bench::kExitFailure;
  }
}

template <typename T>
T checked(Result<T> result) {
  if (!result) throw Failure(exit_code_of(result.error().code), result.error().text);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::unique_ptr<StoreClient> open(const StoreFlags& flags) {
  store_client::StoreOptions options;
  options.reducers = bench::value_or_fail(config::read_reducers(flags.pool.reducers), bench::kExitUsage);
  if (options.reducers.empty())
    throw Failure(bench::kExitUsage, "models are kept by reducers, but the list has none");
  options.identity = flags.pool.credentials.identity();
  options.identity.ranks = 1;
  options.timeout = flags.pool.timeout;
  return checked(StoreClient::open(std::move(options)));
}

std::unique_ptr<StoreClient> open_model(const StoreFlags& flags) {
  auto client = open(flags);
  checked(client->open_model(flags.name));
  return client;
}

std::string read_specification(const std::string& path) {
  return bench::value_or_fail(
      config::read_text_file(path, kMaxSpecification, config::FileKind::kAny, "the specification"),
      bench::kExitConfig);
}

int run_create(const StoreFlags& flags) {
  auto client = open(flags);
  const std::string specification = read_specification(flags.specification);
  const auto source = flags.any ? store::SnapshotSource::kAnyModel : store::SnapshotSource::kThisModel;
  const bool created = checked(flags.file.empty() ? client->create(specification, nullptr)
                                                  : client->restore(specification, flags.file, source));
  bench::print_result(created ? "created\n" : "exists with this specification\n");
  return bench::kExitOk;
}

int run_list(const StoreFlags& flags) {
  for (const auto& name : config::parse_json(checked(open(flags)->list())))
    bench::print_result(name.get<std::string>() + "\n");
  return bench::kExitOk;
}

int run_show(const StoreFlags& flags) {
  bench::print_result(
      config::json_text(config::parse_ordered_json(checked(open_model(flags)->describe())), 2) + "\n");
  return bench::kExitOk;
}

int run_snapshot(const StoreFlags& flags) {
  const auto content =
      flags.resumable ? store::SnapshotContent::kResumable : store::SnapshotContent::kWeights;
  const uint64_t version = checked(open_model(flags)->snapshot(flags.file, content));
  bench::print_result("version " + std::to_string(version) + " in " + flags.file + "\n");
  return bench::kExitOk;
}

int run_watch(const StoreFlags& flags) {
  auto client = open_model(flags);
  uint64_t next = flags.from;
  for (uint32_t seen = 0; flags.count == 0 || seen < flags.count;) {
    auto version = client->wait(next, flags.pool.timeout);
    if (!version && version.error().code == Errc::kTimeout) continue;  // no step in this time
    next = checked(std::move(version)) + 1;
    ++seen;
    bench::print_result(std::to_string(next - 1) + "\n");
  }
  return bench::kExitOk;
}

int run_delete(const StoreFlags& flags) {
  checked(open(flags)->delete_model(flags.name));
  return bench::kExitOk;
}

struct StoreCommand {
  const char* name;
  const char* help;
  int (*run)(const StoreFlags&);
  bool takes_model;
};

}  // namespace

void add_store_commands(CLI::App& program, Command& chosen) {
  CLI::App* store = program.add_subcommand("store", "create, save and watch models that reducers keep");
  store->require_subcommand(1);
  store->footer("Reducers keep models when they are started with --state (docs/guides/models.md).");
  const StoreCommand commands[] = {
      {"create", "create a model, of zeros or from a safetensors file", run_create, false},
      {"list", "print the names of all models", run_list, false},
      {"show", "print a model's specification, version and reducers as JSON", run_show, true},
      {"snapshot", "write the current version to a safetensors file", run_snapshot, true},
      {"watch", "print the number of each new version; one that was replaced meanwhile is skipped", run_watch,
       true},
      {"delete", "delete a model and its files", run_delete, true},
  };
  for (const StoreCommand& command : commands) {
    CLI::App* app = store->add_subcommand(command.name, command.help);
    auto flags = std::make_shared<StoreFlags>();
    if (command.takes_model)
      app->add_option("model", flags->name, "name of the model")->required()->type_name("NAME");
    OptionSet set(*app);
    if (command.run == run_create) {
      app->add_option("specification", flags->specification, "the model as JSON")
          ->required()
          ->type_name("FILE");
      set.text("--from", flags->file, "FILE",
               "first version, a file of `sluice store snapshot`; empty: zeros");
      set.flag("--any", flags->any,
               "with --from: any safetensors file with tensors of these names and shapes");
    } else if (command.run == run_snapshot) {
      app->add_option("file", flags->file, "written when it is complete")->required()->type_name("FILE");
      set.flag("--resumable", flags->resumable,
               "with the state of the rule, for `sluice store create --from`");
    } else if (command.run == run_watch) {
      set.number("--from-version", flags->from, "first version to print");
      set.number("--count", flags->count, "number of versions after which to end; 0: never");
    }
    flags->pool.add_to(set);
    run_when_selected(*app, chosen, flags, command.run);
  }
}

}  // namespace sluice::cli
