//! Paths from the command line, as places of parcels.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use claystone_env::Directory;
use claystone_host::HostDirectory;
use claystone_parcel::{Parcel, Place, find, find_all};

/// Where the chunk files are.
#[derive(Debug, clap::Args)]
pub struct Parts {
    /// A chunk file, the manifest, or a directory with them; several if they lie in several directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Parts {
    /// Finds the parcel.
    ///
    /// # Errors
    /// There is none, several are meant, or its files contradict each other.
    pub fn find(&self) -> anyhow::Result<Parcel> {
        find(&self.places()?).map_err(super::exit)
    }

    /// Finds all parcels that are meant: those of the files that are named, or all in the directories.
    ///
    /// # Errors
    /// There is none, or the files of one contradict each other.
    pub fn find_all(&self) -> anyhow::Result<Vec<Parcel>> {
        find_all(&self.places()?).map_err(super::exit)
    }

    fn places(&self) -> anyhow::Result<Vec<Place>> {
        let places = self.paths.iter().map(|path| {
            let meta = path.metadata().with_context(|| path.display().to_string())?;
            if meta.is_dir() {
                return Ok(Place { directory: Arc::new(HostDirectory::new(path)), file: None });
            }
            let (directory, name) = split(path)?;
            Ok(Place { directory: Arc::new(HostDirectory::new(directory)), file: Some(name) })
        });
        places.collect()
    }

    /// The directory of the first path.
    pub fn first_directory(&self) -> anyhow::Result<Arc<dyn Directory>> {
        let path = &self.paths[0];
        let directory = if path.is_dir() { path.clone() } else { split(path)?.0 };
        Ok(Arc::new(HostDirectory::new(directory)))
    }

    /// The paths as a person typed them.
    pub fn typed(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(" ")
    }
}

/// A file's directory and name.
pub fn split(path: &Path) -> anyhow::Result<(PathBuf, String)> {
    let Some(name) = path.file_name() else { bail!("{}: this is no file's path", path.display()) };
    let Some(name) = name.to_str() else { bail!("{}: the name is not UTF-8", path.display()) };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok((directory, name.to_owned()))
}
