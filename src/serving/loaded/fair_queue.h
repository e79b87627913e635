// A queue in which clients take turns, and so do a client's items. An item may take several turns. Not thread-safe.
#pragma once
#include <deque>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace linnet {
template <class Item> class FairQueue {
 public:
  void push(const std::string& client, Item item) {
    const auto [found, is_new] = by_name_.try_emplace(client);
    if (is_new) found->second = clients_.insert(clients_.end(), {client, {}});
    found->second->items.push_back(std::move(item));
  }
  bool empty() const { return clients_.empty(); }
  Item& front() { return clients_.front().items.front(); }
  // Ends the turn of front(): removes it if done, else it waits for its next turn.
  void end_turn(bool done) {
    Client& client = clients_.front();
    if (!done) client.items.push_back(std::move(client.items.front()));
    client.items.pop_front();
    client.items.empty() ? erase(clients_.begin()) : clients_.splice(clients_.end(), clients_, clients_.begin());
  }
  // Removes the items for which visit(item) returns true.
  template <class Visit> void remove_if(const Visit& visit) {
    for (auto client = clients_.begin(); client != clients_.end();) {
      const auto next = std::next(client);
      std::erase_if(client->items, visit);
      if (client->items.empty()) erase(client);
      client = next;
    }
  }

 private:
  struct Client {
    std::string name;
    std::deque<Item> items;
  };
  using Location = typename std::list<Client>::iterator;

  void erase(Location client) {
    by_name_.erase(client->name);
    clients_.erase(client);
  }

  std::list<Client> clients_;  // next one first
  std::unordered_map<std::string, Location> by_name_;
};
}  // namespace linnet
