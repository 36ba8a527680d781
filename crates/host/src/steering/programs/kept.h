/* What clients have said last at nodes that are leat: of a request that such a node's kernel has acknowledged and its process never answered, there is nothing
 * anywhere else when it dies. Which of it is needed then, leat decides. */
#pragma once
#include "packet.h"

/* Connections that say something else within the time in which a death is noticed. The oldest make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, KEPT_REQUESTS_MAX);
	__type(key, struct flow_key);
	__type(value, struct kept_request);
} kept_requests SEC(".maps");

/* Where one is put together: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kept_request);
} keeping SEC(".maps");

/* Keeps what a client says. What is too long isn't kept, and what was is known by its numbers not to be the last. */
static __noinline void keep_request(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 zero = 0;
	struct flow_key key;
	struct kept_request *kept = bpf_map_lookup_elem(&keeping, &zero);
	if (!packet || !kept)
		return;
	__u64 bytes = packet->payload;
	AS_IT_IS(bytes);
	if (bytes < 1 || bytes > KEPT_BYTES_MAX)
		return;
	if (bpf_skb_load_bytes(skb, packet->l4 + packet->tcp.doff * 4, kept->payload, WITHIN(bytes, KEPT_BYTES_MAX)) < 0)
		return;
	kept->sequence = bpf_ntohl(packet->tcp.seq);
	kept->bytes = bytes;
	set_key(&key, packet);
	bpf_map_update_elem(&kept_requests, &key, kept, BPF_ANY);
}
