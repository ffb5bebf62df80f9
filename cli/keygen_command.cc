// `sluice keygen`: the pool's key, or the token of one job made from it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "bench/e2e/exit_codes.h"
#include "cli/commands.h"
#include "cli/option_set.h"
#include "config/secret_file.h"
#include "wire/handshake.h"

namespace sluice::cli {
namespace {

using bench::Failure;

struct KeygenFlags {
  std::string out;
  std::string job;
  std::string key_file;
};

config::Secret random_secret() {
  config::Secret secret{};
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw Failure(bench::kExitFailure,
                  fmt::format("the system gives no random bytes: {}", std::strerror(errno)));
  }
  return secret;
}

// For the owner alone, and never over a file that is there: it may be the key of a running pool.
void write_secret(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    throw Failure(errno == EEXIST ? bench::kExitUsage : bench::kExitFailure,
                  errno == EEXIST ? fmt::format("{} exists and is not overwritten", path)
                                  : fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  }
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!written) {
    unlink(path.c_str());
    throw Failure(bench::kExitFailure, fmt::format("cannot write {}: {}", path, std::strerror(error)));
  }
}

int run_keygen(const KeygenFlags& flags) {
  if (flags.job.empty() != flags.key_file.empty()) {
    throw Failure(bench::kExitUsage, "a job's token takes both --job and --key-file; a new pool key neither");
  }
  config::Secret secret{};
  if (flags.job.empty()) {
    secret = random_secret();
  } else {
    const auto key = bench::value_or_fail(config::read_secret_file(flags.key_file), bench::kExitConfig);
    secret = wire::job_token(std::as_bytes(std::span(key.secret)), flags.job);
  }
  const std::string text = config::secret_text(secret);
  if (flags.out.empty()) {
    std::fputs(text.c_str(), stdout);
  } else {
    write_secret(flags.out, text);
  }
  return bench::kExitOk;
}

}  // namespace

void add_keygen_command(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand("keygen", "make a pool key, or from it the token of one job");
  app->footer(
      "  sluice keygen --out pool.key                                 for the reducers\n"
      "  sluice keygen --job train-7 --key-file pool.key --out train-7.token   for that job's workers");
  auto flags = std::make_shared<KeygenFlags>();
  OptionSet set(*app);
  set.text("--out", flags->out, "FILE", "write it here (mode 0600, never overwritten) instead of on stdout");
  set.text("--job", flags->job, "NAME", "job that the token is for");
  set.text("--key-file", flags->key_file, "FILE", "pool key to make the job's token from");
  app->callback([flags, &chosen] { chosen = [flags] { return run_keygen(*flags); }; });
}

}  // namespace sluice::cli
