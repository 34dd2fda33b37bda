# Perl: processes, pipes, temporary files, sockets, time.
use strict;
use warnings;
use File::Temp qw(tempfile);
use IO::Socket::INET;
use POSIX qw(strftime setlocale LC_ALL);

my ($file, $name) = tempfile();
print $file "text";
close $file;
die unless -s $name == 4;
die unless `echo words` eq "words\n";
my $server = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die $@;
my $pid = fork // die;
if ($pid == 0) {
    my $client = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $server->sockport) or die $@;
    print $client "hello\n";
    exit 0;
}
my $connection = $server->accept;
die unless <$connection> eq "hello\n";
waitpid $pid, 0;
die unless (getpwuid($<))[0] eq $ENV{USER} and setlocale(LC_ALL, "C.UTF-8");
die unless strftime("%Y", localtime) > 2000;
print "all of it works\n";
