// Class AddressLookup finds the addresses of one host name with a deadline.
//
// The C library's resolver has no deadline, so a thread of its own calls it; it may outlive the object. There
// is at most one such thread for each object. Any thread may call find().
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "core/result.h"
#include "core/units.h"

namespace sluice::store::etcd {

using AddressList = std::shared_ptr<const addrinfo>;

class AddressLookup {
 public:
  AddressLookup(std::string host, uint16_t port);

  // Never empty. An address in place of a name needs no thread. Errors: kTimeout, kReset (the name is
  // unknown, or the name servers do not answer).
  [[nodiscard]] Result<AddressList> find(Nanos deadline);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace sluice::store::etcd
