/* A connection that has moved here sends as much at once as it did where it comes from, as the way to its client is the same. The kernel lets a socket's
 * first congestion window be set by a program only, and only here. docs/decisions/0009-steering.md has the reasons. */
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Of the C library's headers, which aren't made for this processor (asm-generic/socket.h, netinet/in.h). */
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define SOL_TCP 6

/* What leat knows of a socket's way before it connects it. */
struct way {
	/* Segments that may be on their way at once. */
	__u32 window;
	/* Bytes in a second, until a round trip has been measured: BBR takes the first one for a millisecond, and others send all of a window at once, which is
	 * too much for a queue on the way. */
	__u32 rate;
	/* leat's own, if the connection moves on before anything has been measured: microseconds. */
	__u32 round_trip;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct way);
} ways SEC(".maps");

SEC("sockops")
int go_on(struct bpf_sock_ops *event)
{
	__u32 op = event->op;
	struct bpf_sock *socket = event->sk;
	if ((op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_RTT_CB) || !socket)
		return 1;
	struct way *way = bpf_sk_storage_get(&ways, socket, NULL, 0);
	if (!way)
		return 1;
	int window = way->window;
	__u32 rate = way->rate, flags = event->bpf_sock_ops_cb_flags;
	if (op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
		bpf_setsockopt(event, SOL_TCP, TCP_BPF_IW, &window, sizeof(window));
		flags |= BPF_SOCK_OPS_RTT_CB_FLAG;
	} else {
		rate = ~0U;
		flags &= ~BPF_SOCK_OPS_RTT_CB_FLAG;
		bpf_sk_storage_delete(&ways, socket);
	}
	bpf_setsockopt(event, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	bpf_sock_ops_cb_flags_set(event, flags);
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
