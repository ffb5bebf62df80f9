#include "store/coordinator/etcd/etcd_options.h"

#include "config/printable_text.h"

namespace sluice::store {
namespace {

bool has_port(std::string_view item) {
  const size_t bracket = item.rfind(']');
  return item.find(':', bracket == std::string_view::npos ? 0 : bracket) != std::string_view::npos;
}

}  // namespace

Result<EtcdOptions> parse_etcd_url(std::string_view url) {
  const std::string context = "coordinator " + config::in_quotes(url);
  std::string_view list;
  if (url.starts_with("https://"))
    return fail(Errc::kUnsupported,
                context + ": TLS to etcd is not supported; use etcd:// in a private network");
  for (const std::string_view scheme : {"etcd://", "http://"})
    if (url.starts_with(scheme)) list = url.substr(scheme.size());
  if (list.empty()) return invalid(context + ": expected etcd://host[:port],...");
  EtcdOptions options;
  for (size_t number = 1; !list.empty() || number == 1; ++number) {
    const size_t comma = list.find(',');
    const std::string item(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    if (comma != std::string_view::npos && list.empty())
      return invalid(context + ": the list ends with a comma");
    if (item.find_first_of("*/@?# ") != std::string::npos)
      return invalid(context + ": item " + std::to_string(number) + ", " + config::in_quotes(item) +
                     ": expected host[:port]");
    const std::string with_port = has_port(item) ? item : item + ":" + std::to_string(kEtcdPort);
    if (auto added =
            config::add_endpoint(with_port, "item " + std::to_string(number) + ", ", options.endpoints);
        !added)
      return add_context(context, std::move(added.error()));
  }
  return options;
}

}  // namespace sluice::store
